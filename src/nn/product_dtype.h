#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <optional>

namespace automodel::nn {

/// The dtype in which matrices are multiplied, if it is not their own, as under torch.autocast.
/// Operations between products (norms, softmax, sums of the residual stream) use their operands'
/// wider dtype.
class ProductDtype final {
 public:
  void set(at::ScalarType dtype) { dtype_ = dtype; }

  /// Casts an operand of a product; differentiable. Returns it unchanged when no dtype was set, or
  /// when it is undefined, float64 or not floating-point, as torch.autocast does.
  at::Tensor of(const at::Tensor& operand) const;

 private:
  std::optional<at::ScalarType> dtype_;
};

/// A module that itself multiplies matrices (not only in modules below it).
class MultiplyingModule {
 public:
  virtual ~MultiplyingModule() = default;
  virtual ProductDtype& product_dtype() = 0;
};

/// Makes `module` and all modules below it multiply in a dtype, like torch.autocast around its
/// forward. Attention is computed in the dtype of its projections' results.
void set_product_dtype(torch::nn::Module& module, at::ScalarType dtype);

}  // namespace automodel::nn

#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <optional>

namespace automodel::nn {

/// The dtype that matrices are multiplied in, where it is not their own: torch.autocast's, for a
/// layer's products. What stands between them (norms, softmax, sums of the residual stream) goes on
/// in its operands' wider dtype.
class ProductDtype final {
 public:
  void set(at::ScalarType dtype) { dtype_ = dtype; }

  /// An operand of a product; differentiable. As it is where no dtype was set, and when it is
  /// undefined, float64 or no floating number, as in torch.autocast.
  at::Tensor of(const at::Tensor& operand) const;

 private:
  std::optional<at::ScalarType> dtype_;
};

/// A module that multiplies matrices by itself (not by modules below it).
class MultiplyingModule {
 public:
  virtual ~MultiplyingModule() = default;
  virtual ProductDtype& product_dtype() = 0;
};

/// Has `module` and all modules below it multiply in a dtype: torch.autocast around its forward.
/// Attention is computed in the dtype that its projections give.
void set_product_dtype(torch::nn::Module& module, at::ScalarType dtype);

}  // namespace automodel::nn

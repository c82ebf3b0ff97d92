#pragma once

#include <torch/nn/module.h>

#include <cstdint>

#include "nn/product_dtype.h"

namespace automodel::nn {

struct GroupedLinearOptions {
  int64_t num_groups = 1;
  int64_t in_features = 0;   ///< of a group
  int64_t out_features = 0;  ///< of a group
};

/// A product of each of G groups of dims with a matrix of its own: the first half of DeepSeek V4's
/// projection behind attention. Parameter weight [G out, in], group after group. It takes no
/// adapters, as PEFT's for a linear layer do not fit it.
class GroupedLinear final : public torch::nn::Module, public MultiplyingModule {
 public:
  GroupedLinear(const GroupedLinearOptions& options, at::ScalarType dtype);

  /// x [B, S, G in] to [B, S, G out].
  at::Tensor forward(const at::Tensor& x) const;
  ProductDtype& product_dtype() override { return product_dtype_; }

 private:
  GroupedLinearOptions options_;
  at::Tensor weight_;
  ProductDtype product_dtype_;
};

}  // namespace automodel::nn

#pragma once

#include <torch/nn/module.h>

#include "kernels/recurrence/causal_conv.h"

namespace automodel::nn {

struct CausalConvOptions {
  int64_t num_channels = 0;
  int64_t num_taps = 0;  ///< positions that a result depends on, its own included
  bool has_bias = false;
};

/// Filters each channel along the sequence; a result depends on no later position. Parameters:
/// weight [C, 1, K], bias [C].
class CausalConv final : public torch::nn::Module {
 public:
  CausalConv(const CausalConvOptions& options, at::ScalarType dtype);

  /// x [B, S, C] to [B, S, C]; `runs` as in kernels::causal_conv.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& runs) const {
    return kernels::causal_conv(x, weight_, bias_, runs);
  }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

}  // namespace automodel::nn

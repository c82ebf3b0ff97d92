#pragma once

#include <torch/nn/module.h>

#include <cstdint>

namespace automodel::nn {

struct GatedNormOptions {
  int64_t dim = 0;
  int64_t num_groups = 1;       ///< equal parts of the dims that are normed one by one
  bool is_gated_first = false;  ///< the gate goes into the norm; else behind it
  double eps = 1e-6;
};

/// RMSNorm beside silu(gate): norm(x * silu(gate)) w, or norm(x) w silu(gate), in float32 at least.
/// Parameter: weight [dim].
class GatedNorm final : public torch::nn::Module {
 public:
  GatedNorm(const GatedNormOptions& options, at::ScalarType dtype);

  /// x and gate [..., dim]; the result has x's dtype.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& gate) const;

 private:
  GatedNormOptions options_;
  at::Tensor weight_;
};

}  // namespace automodel::nn

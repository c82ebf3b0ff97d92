#pragma once

#include <torch/nn/module.h>

#include <cstdint>

namespace automodel::nn {

struct GatedNormOptions {
  int64_t dim = 0;
  int64_t num_groups = 1;       ///< equal parts of the dims that are normed separately
  bool is_gated_first = false;  ///< whether the gate is applied before the norm
  bool is_sigmoid = false;      ///< the gate goes through a sigmoid instead of silu
  double eps = 1e-6;
};

/// RMSNorm beside f(gate), silu or a sigmoid: norm(x * f(gate)) w, or norm(x) w f(gate), in float32
/// at least. Parameter: weight [dim].
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

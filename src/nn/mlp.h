#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "kernels/layers/activation.h"
#include "nn/layers.h"

namespace automodel::nn {

struct MlpOptions {
  int64_t dim = 0;
  int64_t inner_dim = 0;
  kernels::Activation activation = kernels::Activation::kSilu;
  bool is_gated = true;
  bool has_xielu = false;  ///< in the place of `activation`; only without a gate
  bool has_bias = false;
  bool is_transposed = false;  ///< weights are stored [in, out]
  double gate_scale = 1.0;     ///< of gate(x), before the activation
  double output_scale = 1.0;
  kernels::GateBounds gate_bounds = {};
};

/// down(act(gate(x)) * up(x)) with gate and up as the rows of gate_up_proj, or down(act(up(x))),
/// and the options' scales. Of xIELU it has the parameters alpha_p and alpha_n, by whose softplus
/// the factors are made, and beta and eps, which are not trained; all [1].
class Mlp final : public torch::nn::Module {
 public:
  Mlp(const MlpOptions& options, at::ScalarType dtype);

  /// x [..., D] to [..., D].
  at::Tensor forward(const at::Tensor& x) const;

 private:
  at::Tensor activated(const at::Tensor& up) const;

  kernels::Activation activation_;
  bool is_gated_;
  double gate_scale_;
  double output_scale_;
  kernels::GateBounds gate_bounds_;
  std::shared_ptr<Linear> up_proj_;  ///< "gate_up_proj" when gated
  std::shared_ptr<Linear> down_proj_;
  at::Tensor alpha_p_;  ///< undefined without xIELU, as the next three
  at::Tensor alpha_n_;
  at::Tensor beta_;
  at::Tensor eps_;
};

}  // namespace automodel::nn

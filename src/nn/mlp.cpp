#include "nn/mlp.h"

#include <ATen/ATen.h>

#include <vector>

#include "core/error.h"
#include "kernels/layers/xielu.h"
#include "tensor/dtype.h"
#include "tensor/shard_spec.h"

namespace automodel::nn {

Mlp::Mlp(const MlpOptions& options, at::ScalarType dtype)
    : activation_(options.activation),
      is_gated_(options.is_gated),
      gate_scale_(options.gate_scale),
      output_scale_(options.output_scale),
      gate_bounds_(options.gate_bounds) {
  const int num_parts = is_gated_ ? 2 : 1;
  up_proj_ = register_module(
      is_gated_ ? "gate_up_proj" : "up_proj",
      std::make_shared<Linear>(
          LinearOptions{
              .in_features = options.dim,
              .out_features = options.inner_dim * num_parts,
              .has_bias = options.has_bias,
              .is_transposed = options.is_transposed,
              .groups = std::vector<int64_t>(static_cast<size_t>(num_parts), options.inner_dim)},
          dtype));
  down_proj_ = register_module(
      "down_proj", std::make_shared<Linear>(LinearOptions{.in_features = options.inner_dim,
                                                          .out_features = options.dim,
                                                          .has_bias = options.has_bias,
                                                          .is_transposed = options.is_transposed},
                                            dtype));
  if (!options.has_xielu) return;
  AM_CHECK(!is_gated_);
  const auto number = [&](const char* name, bool is_trained) {
    return register_parameter(name, tensor::placeholder({1}, dtype), is_trained);
  };
  alpha_p_ = number("alpha_p", true);
  alpha_n_ = number("alpha_n", true);
  beta_ = number("beta", false);
  eps_ = number("eps", false);
}

at::Tensor Mlp::activated(const at::Tensor& up) const {
  if (is_gated_) return kernels::gated_activation(up, activation_);
  if (!alpha_p_.defined()) return kernels::activate(up, activation_);
  const at::ScalarType wide = tensor::wide_dtype(up.scalar_type());
  const at::Tensor beta = beta_.to(wide);
  return kernels::xielu(up, {.positive = at::softplus(alpha_p_.to(wide)),
                             .negative = beta + at::softplus(alpha_n_.to(wide)),
                             .beta = beta,
                             .bound = eps_.to(wide)});
}

at::Tensor Mlp::forward(const at::Tensor& x) const {
  at::Tensor up = up_proj_->forward(x);
  if (gate_scale_ != 1.0) {
    const std::vector<at::Tensor> parts = up.chunk(2, -1);
    up = at::cat({parts[0] * gate_scale_, parts[1]}, -1);
  }
  if (is_gated_) up = kernels::bounded_gate_up(up, gate_bounds_);
  const at::Tensor out = down_proj_->forward(activated(up));
  return output_scale_ == 1.0 ? out : out * output_scale_;
}

}  // namespace automodel::nn

#include "models/decoder/gated_delta_net.h"

#include <ATen/ATen.h>

#include "kernels/base/pointwise.h"
#include "kernels/layers/activation.h"
#include "kernels/recurrence/linear_recurrence.h"
#include "tensor/dtype.h"
#include "tensor/shard_spec.h"

namespace automodel::models::decoder {

GatedDeltaNet::GatedDeltaNet(const DecoderConfig& config, at::ScalarType dtype)
    : sizes_(*config.gated_delta), activation_(config.activation) {
  dt_bias_ = register_parameter("dt_bias", tensor::placeholder({sizes_.decays()}, dtype));
  a_log_ = register_parameter("A_log", tensor::placeholder({sizes_.num_heads}, dtype));
  in_proj_ = register_module(
      "in_proj", std::make_shared<nn::Linear>(
                     nn::LinearOptions{config.hidden_size, sizes_.projected_rows()}, dtype));
  conv_ = register_module(
      "conv1d", std::make_shared<nn::CausalConv>(
                    nn::CausalConvOptions{sizes_.conv_channels(), sizes_.num_taps}, dtype));
  if (sizes_.has_row_decays) {
    step_proj_ = register_module(
        "step_proj",
        std::make_shared<nn::Linear>(nn::LinearOptions{sizes_.key_dim, sizes_.decays()}, dtype));
    gate_proj_ = register_module(
        "gate_proj",
        std::make_shared<nn::Linear>(nn::LinearOptions{sizes_.value_dim, sizes_.values()}, dtype));
  }
  norm_ = register_module("norm", std::make_shared<nn::GatedNorm>(
                                      nn::GatedNormOptions{.dim = sizes_.value_dim,
                                                           .is_sigmoid = sizes_.has_row_decays,
                                                           .eps = config.norm_eps},
                                      dtype));
  out_proj_ = register_module(
      "out_proj",
      std::make_shared<nn::Linear>(nn::LinearOptions{sizes_.values(), config.hidden_size}, dtype));
}

/// Rows: q, k, v, gate, beta, step.
GatedDeltaNet::Projected GatedDeltaNet::split(const at::Tensor& projected) const {
  const int64_t channels = sizes_.conv_channels();
  const auto parts = projected.split_with_sizes(
      {channels, sizes_.values(), sizes_.num_heads, sizes_.num_heads}, -1);
  return {parts[0], parts[1].unflatten(-1, {sizes_.num_heads, sizes_.value_dim}), parts[2],
          parts[3]};
}

/// Rows: for each key head q, k and its heads' v and gate; then for each key head its heads' beta
/// and step.
GatedDeltaNet::Projected GatedDeltaNet::split_grouped(const at::Tensor& projected) const {
  const int64_t num_groups = sizes_.num_key_heads;
  const int64_t values = sizes_.values() / num_groups;
  const int64_t heads = sizes_.num_heads / num_groups;
  const auto halves = projected.split_with_sizes(
      {2 * sizes_.keys() + 2 * sizes_.values(), 2 * sizes_.num_heads}, -1);
  const auto rows = halves[0]
                        .unflatten(-1, {num_groups, -1})
                        .split_with_sizes({sizes_.key_dim, sizes_.key_dim, values, values}, -1);
  const auto scalars =
      halves[1].unflatten(-1, {num_groups, -1}).split_with_sizes({heads, heads}, -1);
  return {at::cat({rows[0].flatten(-2), rows[1].flatten(-2), rows[2].flatten(-2)}, -1),
          rows[3].flatten(-2).unflatten(-1, {sizes_.num_heads, sizes_.value_dim}),
          scalars[0].flatten(-2), scalars[1].flatten(-2)};
}

/// Rows: q, k, v, beta, the narrow step, the narrow gate.
GatedDeltaNet::Projected GatedDeltaNet::split_narrow(const at::Tensor& projected) const {
  const auto parts = projected.split_with_sizes(
      {sizes_.conv_channels(), sizes_.num_heads, sizes_.key_dim, sizes_.value_dim}, -1);
  return {
      parts[0], gate_proj_->forward(parts[3]).unflatten(-1, {sizes_.num_heads, sizes_.value_dim}),
      parts[1], step_proj_->forward(parts[2]).unflatten(-1, {sizes_.num_heads, sizes_.key_dim})};
}

/// Logarithms of the state's factors, of steps before bias and softplus.
at::Tensor GatedDeltaNet::decay(const at::Tensor& step) const {
  const at::ScalarType wide = tensor::wide_dtype(step.scalar_type());
  at::Tensor bias = dt_bias_.to(wide);
  at::Tensor rate = a_log_.to(wide).exp().neg();
  if (sizes_.has_row_decays) {
    bias = bias.view({sizes_.num_heads, sizes_.key_dim});
    rate = rate.unsqueeze(-1);
  }
  return kernels::softplus(step.to(wide) + bias) * rate;
}

at::Tensor GatedDeltaNet::forward(const at::Tensor& x, const ForwardContext& context) const {
  const at::Tensor projected = in_proj_->forward(without_padding(x, context));
  const Projected in = sizes_.has_row_decays ? split_narrow(projected)
                       : sizes_.is_grouped   ? split_grouped(projected)
                                             : split(projected);
  const at::Tensor mixed =
      kernels::activate(conv_->forward(in.qkv, context.document_runs), activation_);
  const auto heads = mixed.split_with_sizes({sizes_.keys(), sizes_.keys(), sizes_.values()}, -1);
  kernels::GatedDeltaInputs inputs;
  inputs.q = heads[0].unflatten(-1, {sizes_.num_key_heads, sizes_.key_dim});
  inputs.k = heads[1].unflatten(-1, {sizes_.num_key_heads, sizes_.key_dim});
  inputs.v = heads[2].unflatten(-1, {sizes_.num_heads, sizes_.value_dim});
  inputs.decay = decay(in.step);
  inputs.beta = kernels::sigmoid(in.beta);
  inputs.runs = context.document_runs;
  return out_proj_->forward(norm_->forward(kernels::gated_delta_rule(inputs), in.gate).flatten(-2));
}

}  // namespace automodel::models::decoder

#include "models/decoder/mamba2.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/base/pointwise.h"
#include "kernels/layers/activation.h"
#include "kernels/recurrence/linear_recurrence.h"
#include "tensor/dtype.h"
#include "tensor/shard_spec.h"

namespace automodel::models::decoder {

Mamba2::Mamba2(const DecoderConfig& config, at::ScalarType dtype) : sizes_(*config.mamba2) {
  const auto vector = [&](const char* name) {
    return register_parameter(name, tensor::placeholder({sizes_.num_heads}, dtype));
  };
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(
        name, std::make_shared<nn::Linear>(
                  nn::LinearOptions{
                      .in_features = in, .out_features = out, .has_bias = sizes_.has_proj_bias},
                  dtype));
  };
  dt_bias_ = vector("dt_bias");
  a_log_ = vector("A_log");
  d_ = vector("D");
  in_proj_ = linear("in_proj", config.hidden_size, sizes_.projected_rows());
  conv_ = register_module(
      "conv1d",
      std::make_shared<nn::CausalConv>(
          nn::CausalConvOptions{sizes_.conv_channels(), sizes_.num_taps, sizes_.has_conv_bias},
          dtype));
  if (sizes_.has_norm) {
    norm_ =
        register_module("norm", std::make_shared<nn::GatedNorm>(
                                    nn::GatedNormOptions{.dim = sizes_.inner(),
                                                         .num_groups = sizes_.norm_groups(),
                                                         .is_gated_first = sizes_.is_gated_first,
                                                         .eps = config.norm_eps},
                                    dtype));
  }
  out_proj_ = linear("out_proj", sizes_.inner(), config.hidden_size);
}

/// in_proj of x, with the scales of both.
at::Tensor Mamba2::project(const at::Tensor& x) const {
  const at::Tensor rows = in_proj_->forward(sizes_.input_scale == 1.0 ? x : x * sizes_.input_scale);
  const std::array<double, 5>& scales = sizes_.row_scales;
  if (std::ranges::all_of(scales, [](double scale) { return scale == 1.0; })) return rows;
  const int64_t inner = sizes_.inner();
  const int64_t states = sizes_.states();
  const std::array<int64_t, 5> counts = {inner, inner, states, states, sizes_.num_heads};
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < counts.size(); ++i) {
    parts.push_back(at::full({counts[i]}, scales[i], rows.options()));
  }
  return rows * at::cat(parts);
}

/// The scan's result [B, S, inner] with its gate, and its norm where it has one.
at::Tensor Mamba2::gated(const at::Tensor& out, const at::Tensor& gate) const {
  if (norm_) return norm_->forward(out, gate);
  return out * kernels::silu(gate.to(out.scalar_type()));
}

at::Tensor Mamba2::forward(const at::Tensor& x, const ForwardContext& context) const {
  const auto rows =
      project(without_padding(x, context))
          .split_with_sizes({sizes_.inner(), sizes_.conv_channels(), sizes_.num_heads}, -1);
  const at::Tensor mixed =
      kernels::activate(conv_->forward(rows[1], context.document_runs), sizes_.activation);
  const auto parts = without_padding(mixed, context)
                         .split_with_sizes({sizes_.inner(), sizes_.states(), sizes_.states()}, -1);
  const at::ScalarType wide = tensor::wide_dtype(x.scalar_type());
  kernels::StateSpaceInputs inputs;
  inputs.x = parts[0].unflatten(-1, {sizes_.num_heads, sizes_.head_dim}).to(wide);
  inputs.step = kernels::softplus(rows[2].to(wide) + dt_bias_.to(wide))
                    .clamp(sizes_.min_step, sizes_.max_step);
  inputs.decay = inputs.step * a_log_.to(wide).exp().neg();
  inputs.b = parts[1].unflatten(-1, {sizes_.num_groups, sizes_.state_dim});
  inputs.c = parts[2].unflatten(-1, {sizes_.num_groups, sizes_.state_dim});
  inputs.runs = context.document_runs;
  const at::Tensor out = kernels::state_space_scan(inputs) + inputs.x * d_.to(wide).unsqueeze(-1);
  const at::Tensor result =
      out_proj_->forward(gated(out.flatten(-2), rows[0]).to(rows[0].scalar_type()));
  return sizes_.output_scale == 1.0 ? result : result * sizes_.output_scale;
}

}  // namespace automodel::models::decoder

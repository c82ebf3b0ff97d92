#include "models/decoder/mamba2.h"

#include <ATen/ATen.h>

#include "kernels/activation.h"
#include "kernels/linear_recurrence.h"
#include "kernels/pointwise.h"
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
  norm_ = register_module(
      "norm", std::make_shared<nn::GatedNorm>(nn::GatedNormOptions{.dim = sizes_.inner(),
                                                                   .num_groups = sizes_.num_groups,
                                                                   .is_gated_first = true,
                                                                   .eps = config.norm_eps},
                                              dtype));
  out_proj_ = linear("out_proj", sizes_.inner(), config.hidden_size);
}

at::Tensor Mamba2::forward(const at::Tensor& x, const ForwardContext& context) const {
  const auto rows =
      in_proj_->forward(without_padding(x, context))
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
  return out_proj_->forward(norm_->forward(out.flatten(-2), rows[0]).to(rows[0].scalar_type()));
}

}  // namespace automodel::models::decoder

#include "models/decoder/compressed_attention.h"

#include <ATen/core/Tensor.h>

#include <cmath>

#include "kernels/layers/norm.h"
#include "tensor/dtype.h"
#include "tensor/shard_spec.h"

// B sequences of S tokens, N heads of H dims, W compressed keys.

namespace automodel::models::decoder {

CompressedAttention::CompressedAttention(const DecoderConfig& config, int64_t layer,
                                         at::ScalarType dtype)
    : layer_(config.layers[static_cast<size_t>(layer)]),
      num_heads_(config.num_heads),
      head_dim_(config.head_dim),
      norm_eps_(config.norm_eps),
      core_(nn::make_local_attention_core()) {
  const CompressedAttentionOptions& sizes = *config.compressed_attention;
  const int64_t q_rows = num_heads_ * head_dim_;
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name,
                           std::make_shared<nn::Linear>(
                               nn::LinearOptions{.in_features = in, .out_features = out}, dtype));
  };
  const auto norm = [&](const char* name, int64_t dim) {
    return register_module(
        name, std::make_shared<nn::RmsNorm>(dim, kernels::NormOptions{norm_eps_}, dtype));
  };
  sinks_ =
      register_parameter("sinks", tensor::placeholder({num_heads_}, tensor::wide_dtype(dtype)));
  q_a_proj_ = linear("q_a_proj", config.hidden_size, sizes.q_rank);
  q_a_norm_ = norm("q_a_norm", sizes.q_rank);
  q_b_proj_ = linear("q_b_proj", sizes.q_rank, q_rows);
  kv_proj_ = linear("kv_proj", config.hidden_size, head_dim_);
  kv_norm_ = norm("kv_norm", head_dim_);
  const nn::GroupedLinearOptions groups{.num_groups = sizes.num_output_groups,
                                        .in_features = q_rows / sizes.num_output_groups,
                                        .out_features = sizes.output_rank};
  o_a_proj_ = register_module("o_a_proj", std::make_shared<nn::GroupedLinear>(groups, dtype));
  o_b_proj_ = linear("o_b_proj", sizes.num_output_groups * sizes.output_rank, config.hidden_size);
  if (layer_.compression == Compression::kNone) return;
  compressor_ = register_module(
      "compressor",
      std::make_shared<Compressor>(
          config, CompressorOptions{.compression = layer_.compression, .head_dim = head_dim_},
          dtype));
  if (layer_.compression == Compression::kSparse) {
    indexer_ =
        register_module("indexer", std::make_shared<CompressedIndexer>(config, layer_.rope, dtype));
  }
}

at::Tensor CompressedAttention::attend_in_window(const at::Tensor& q, const at::Tensor& kv,
                                                 const ForwardContext& context) const {
  kernels::AttentionOptions options;
  options.window = layer_.window;
  options.sinks = sinks_;
  options.padding_mask = context.padding_mask;
  options.document_ids = context.document_ids;
  return core_->attend(q, kv, kv, options).out;
}

at::Tensor CompressedAttention::attend_with_windows(const at::Tensor& q, const at::Tensor& kv,
                                                    const kernels::AttentionPart& compressed,
                                                    const ForwardContext& context) const {
  const kernels::TwoPartOptions options{.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_)),
                                        .sinks = sinks_};
  return kernels::two_part_attention(q, {kv, kv, context.compressed.sliding_keys}, compressed,
                                     options);
}

at::Tensor CompressedAttention::forward(const at::Tensor& x, const ForwardContext& context) const {
  const kernels::RopeTable& rope = context.ropes[static_cast<size_t>(layer_.rope)];
  const at::Tensor latent = q_a_norm_->forward(q_a_proj_->forward(x));
  const at::Tensor projected = q_b_proj_->forward(latent);
  const at::ScalarType dtype = projected.scalar_type();
  const at::Tensor normed =
      kernels::unweighted_rms_norm(projected.unflatten(-1, {num_heads_, head_dim_}), norm_eps_);
  const at::Tensor q = kernels::rotate_last_pairs(normed, rope, context.position_ids);
  const at::Tensor kv =
      kernels::rotate_last_pairs(kv_norm_->forward(kv_proj_->forward(x)).unsqueeze(2), rope,
                                 context.position_ids)
          .to(dtype);
  at::Tensor out;
  if (!compressor_) {
    out = attend_in_window(q, kv, context);
  } else {
    const kernels::CompressedWindows& windows =
        indexer_ ? context.compressed.sparse : context.compressed.heavy;
    const at::Tensor keys = compressor_->forward(x, windows, rope).unsqueeze(2).to(dtype);
    kernels::AttentionPart compressed{keys, keys, windows.visible_keys};
    if (indexer_) compressed.chosen_keys = indexer_->choose(x, latent, context);
    out = attend_with_windows(q, kv, compressed, context);
  }
  out = kernels::rotate_last_pairs(out, rope, context.position_ids, kernels::RopeDirection::kBack);
  return o_b_proj_->forward(o_a_proj_->forward(out.flatten(-2)));
}

}  // namespace automodel::models::decoder

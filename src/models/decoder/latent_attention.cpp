#include "models/decoder/latent_attention.h"

#include <ATen/ATen.h>

#include "core/text.h"

namespace automodel::models::decoder {

LatentAttention::LatentAttention(const DecoderConfig& config, int64_t layer, at::ScalarType dtype)
    : sizes_(*config.latent_attention),
      layer_(config.layers[static_cast<size_t>(layer)]),
      number_(layer),
      num_heads_(config.num_heads),
      dropout_site_(cat("layers.", layer, ".attention.probabilities")),
      dropout_(config.attention_dropout),
      core_(nn::make_local_attention_core()) {
  const auto linear = [&](const char* name, int64_t in, int64_t out, bool has_bias = false) {
    return register_module(
        name, std::make_shared<nn::Linear>(
                  nn::LinearOptions{.in_features = in, .out_features = out, .has_bias = has_bias},
                  dtype));
  };
  const auto norm = [&](const char* name, int64_t dim) {
    return register_module(name, std::make_shared<nn::RmsNorm>(dim, kernels::NormOptions{}, dtype));
  };
  const int64_t hidden = config.hidden_size;
  const int64_t q_size = num_heads_ * sizes_.qk_dim();
  if (sizes_.q_rank == 0) {
    q_proj_ = linear("q_proj", hidden, q_size);
  } else {
    q_a_proj_ = linear("q_a_proj", hidden, sizes_.q_rank, config.has_qkv_bias);
    q_a_norm_ = norm("q_a_norm", sizes_.q_rank);
    q_proj_ = linear("q_b_proj", sizes_.q_rank, q_size);
  }
  kv_a_proj_ =
      linear("kv_a_proj", hidden, sizes_.kv_rank + sizes_.rotated_dim, config.has_qkv_bias);
  kv_a_norm_ = norm("kv_a_norm", sizes_.kv_rank);
  kv_b_proj_ =
      linear("kv_b_proj", sizes_.kv_rank, num_heads_ * (sizes_.plain_dim + sizes_.value_dim));
  o_proj_ =
      linear("o_proj", num_heads_ * sizes_.value_dim, hidden, config.has_attention_output_bias);
  if (layer_.choosing_layer == layer) {
    indexer_ = register_module("indexer", std::make_shared<Indexer>(config, layer_.rope, dtype));
  }
}

/// The keys that queries see, of kernels::choose_keys: this layer's choice, or the one it shares.
at::Tensor LatentAttention::chosen_keys(const at::Tensor& x, const at::Tensor& latent,
                                        const ForwardContext& context) const {
  if (!indexer_) {
    if (layer_.choosing_layer < 0) return {};
    return context.key_choices->at(static_cast<size_t>(layer_.choosing_layer));
  }
  at::Tensor chosen = indexer_->choose(x, latent, context);
  if (context.key_choices) context.key_choices->at(static_cast<size_t>(number_)) = chosen;
  return chosen;
}

/// Rotates x [B, S, heads, R], in layers that do.
at::Tensor LatentAttention::rotated(const at::Tensor& x, const ForwardContext& context) const {
  if (layer_.rope < 0) return x;
  at::Tensor halves = x;
  if (sizes_.is_rope_interleaved) {
    halves = x.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2);
  }
  const kernels::RopeTable& rope = context.ropes[static_cast<size_t>(layer_.rope)];
  return kernels::rotate(halves, rope, context.position_ids);
}

/// q [B, S, N, H], the part of each head for it rotated.
at::Tensor LatentAttention::queries(const at::Tensor& q, const ForwardContext& context) const {
  if (layer_.rope < 0) return q;
  const at::Tensor turned = rotated(q.narrow(-1, sizes_.plain_dim, sizes_.rotated_dim), context);
  return scaled_queries(at::cat({q.narrow(-1, 0, sizes_.plain_dim), turned}, -1),
                        context.ropes[static_cast<size_t>(layer_.rope)], context.position_ids);
}

at::Tensor LatentAttention::forward(const at::Tensor& x, const ForwardContext& context) const {
  const at::Tensor q_latent = q_a_proj_ ? q_a_norm_->forward(q_a_proj_->forward(x)) : x;
  const at::Tensor q = q_proj_->forward(q_latent).unflatten(-1, {num_heads_, sizes_.qk_dim()});
  const at::Tensor latent = kv_a_proj_->forward(x);
  const at::Tensor compressed = latent.narrow(-1, 0, sizes_.kv_rank).contiguous();
  const at::Tensor kv = kv_b_proj_->forward(kv_a_norm_->forward(compressed))
                            .unflatten(-1, {num_heads_, sizes_.plain_dim + sizes_.value_dim});
  const at::Tensor shared_key =
      rotated(latent.narrow(-1, sizes_.kv_rank, sizes_.rotated_dim).unsqueeze(2), context);
  const at::Tensor all_q = queries(q, context);
  const at::Tensor all_k = at::cat(
      {kv.narrow(-1, 0, sizes_.plain_dim), shared_key.expand({-1, -1, num_heads_, -1})}, -1);
  kernels::AttentionOptions options;
  options.scale = layer_.attention_scale;
  options.padding_mask = context.padding_mask;
  options.document_ids = context.document_ids;
  options.visible_keys = context.visible_keys;
  options.chosen_keys = chosen_keys(x, q_latent, context);
  options.dropout = attention_dropout(context, dropout_site_, dropout_, 0, num_heads_);
  const at::Tensor out =
      core_->attend(all_q, all_k, kv.narrow(-1, sizes_.plain_dim, sizes_.value_dim), options).out;
  return o_proj_->forward(out.flatten(-2));
}

}  // namespace automodel::models::decoder

#include "models/decoder/attention_layer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/error.h"
#include "core/text.h"
#include "kernels/base/pointwise.h"
#include "kernels/layers/norm.h"
#include "models/decoder/distance_slopes.h"
#include "tensor/random.h"
#include "tensor/shard_spec.h"

namespace automodel::models::decoder {

Attention::Attention(const DecoderConfig& config, int64_t layer, at::ScalarType dtype)
    : layer_(config.layers[static_cast<size_t>(layer)]),
      dropout_site_(cat("layers.", layer, ".attention.probabilities")),
      dropout_(config.attention_dropout),
      is_causal_(config.is_causal),
      softcap_(config.attention_softcap),
      qk_norm_(config.qk_norm_of(layer_)),
      is_qk_norm_last_(config.is_qk_norm_last),
      is_qkv_by_group_(config.is_qkv_by_group),
      qkv_clip_(config.qkv_clip),
      is_rope_interleaved_(config.is_rope_interleaved),
      has_gate_(config.has_attention_gate),
      has_head_gates_(config.has_head_gates),
      are_head_gates_wide_(config.are_head_gates_wide),
      is_head_gate_softplus_(config.is_head_gate_softplus),
      has_other_values_(config.has_other_values(layer_)),
      has_value_norm_(config.has_value_norm),
      value_dim_(config.value_dim_of(layer_)),
      value_scale_(config.value_scale),
      distance_slopes_(config.distance_slopes),
      num_all_heads_(config.heads_of(layer_)),
      core_(nn::make_local_attention_core()) {
  options_.num_heads = num_all_heads_;
  options_.num_kv_heads = config.kv_heads_of(layer_);
  options_.head_dim = config.head_dim_of(layer_);
  options_.norm = {config.norm_eps, config.norm == NormKind::kRmsPlusOne};
  std::vector<int64_t> groups = {config.q_rows(layer_)};
  for (const int64_t rows :
       {config.k_rows(layer_), config.v_rows(layer_), config.gate_rows(layer_)}) {
    if (rows > 0) groups.push_back(rows);
  }
  if (is_qkv_by_group_) groups.clear();  // runs of heads are runs of rows
  if (config.has_sinks(layer_)) {
    sinks_ = register_parameter("sinks", tensor::placeholder({options_.num_heads}, dtype),
                                !config.are_sinks_frozen);
  }
  qkv_proj_ = register_module(
      "qkv_proj",
      std::make_shared<nn::Linear>(nn::LinearOptions{.in_features = config.hidden_size,
                                                     .out_features = config.qkv_rows(layer_),
                                                     .has_bias = config.has_qkv_bias,
                                                     .is_transposed = config.is_conv1d,
                                                     .groups = groups},
                                   dtype));
  add_qk_norms(config, dtype);
  o_proj_ = register_module(
      "o_proj",
      std::make_shared<nn::Linear>(nn::LinearOptions{.in_features = config.output_columns(layer_),
                                                     .out_features = config.hidden_size,
                                                     .has_bias = config.has_attention_output_bias,
                                                     .is_transposed = config.is_conv1d},
                                   dtype));
}

void Attention::add_qk_norms(const DecoderConfig& config, at::ScalarType dtype) {
  const int64_t dim = options_.head_dim;
  const auto rms = [&](const char* name, int64_t heads) {
    const int64_t size = qk_norm_ == QkNorm::kPerHead ? dim : heads * dim;
    return register_module(name, std::make_shared<nn::RmsNorm>(size, options_.norm, dtype));
  };
  const auto layer = [&](const char* name) {
    const nn::LayerNormOptions options{.eps = config.norm_eps};
    return register_module(name, std::make_shared<nn::LayerNorm>(dim, options, dtype));
  };
  const auto of_heads = [&](const char* name, int64_t heads) {
    return register_module(
        name, std::make_shared<nn::HeadsLayerNorm>(heads, dim, config.norm_eps, dtype));
  };
  switch (qk_norm_) {
    case QkNorm::kNone:
    case QkNorm::kPlainPerHead:
      return;
    case QkNorm::kPerHead:
    case QkNorm::kWholeProjection:
      q_norm_ = rms("q_norm", options_.num_heads);
      if (layer_.has_own_keys()) k_norm_ = rms("k_norm", options_.num_kv_heads);
      return;
    case QkNorm::kLayerPerHead:
      q_layer_norm_ = layer("q_norm");
      k_layer_norm_ = layer("k_norm");
      return;
    case QkNorm::kLayerOfHeads:
      q_heads_norm_ = of_heads("q_norm", options_.num_heads);
      k_heads_norm_ = of_heads("k_norm", options_.num_kv_heads);
      return;
  }
}

/// Reorders heads [B, S, N, H] of q or k so that pairs to rotate are no longer neighbours but d and
/// d + rotary_dim / 2. Scores are unchanged where q and k are reordered alike.
static at::Tensor pairs_to_halves(const at::Tensor& heads, const kernels::RopeTable& rope) {
  const int64_t rotary_dim = 2 * rope.cos.size(1);
  const at::Tensor halves =
      heads.narrow(-1, 0, rotary_dim).unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2);
  return at::cat({halves, heads.narrow(-1, rotary_dim, heads.size(-1) - rotary_dim)}, -1);
}

/// qkv [B, S, (N + 2 K) H] with q and k reordered so.
static at::Tensor pairs_to_halves(const at::Tensor& qkv, const kernels::QkvOptions& options) {
  const int64_t num_rotated = options.num_heads + options.num_kv_heads;
  const at::Tensor heads =
      qkv.unflatten(-1, {num_rotated + options.num_kv_heads, options.head_dim});
  const at::Tensor halves = pairs_to_halves(heads.narrow(-2, 0, num_rotated), options.rope);
  const at::Tensor v = heads.narrow(-2, num_rotated, options.num_kv_heads);
  return at::cat({halves, v}, -2).flatten(-2);
}

at::Tensor scaled_queries(const at::Tensor& q, const kernels::RopeTable& rope,
                          const at::Tensor& position_ids) {
  if (!rope.query_scale.defined()) return q;
  const at::Tensor scale = position_ids.defined()
                               ? rope.query_scale.index({position_ids})
                               : rope.query_scale.narrow(0, 0, q.size(1)).unsqueeze(0);
  return q * scale.unsqueeze(-1).unsqueeze(-1).to(q.scalar_type());
}

kernels::Qkv Attention::heads(const at::Tensor& projected, const ForwardContext& context) const {
  kernels::QkvOptions options = options_;
  if (layer_.rope >= 0) options.rope = context.ropes[static_cast<size_t>(layer_.rope)];
  options.position_ids = context.position_ids;
  if (has_other_values_) return heads_with_other_values(projected, options);
  const bool has_layer_norms = q_layer_norm_ != nullptr || q_heads_norm_ != nullptr;
  const at::Tensor normed = has_layer_norms ? head_layer_normed(projected) : projected;
  const bool has_pairs = is_rope_interleaved_ && options.rope.is_defined();
  const at::Tensor qkv = has_pairs ? pairs_to_halves(normed, options) : normed;
  if (qk_norm_ == QkNorm::kWholeProjection) return heads_normed_whole(qkv, options);
  if (is_qk_norm_last_) return heads_normed_last(qkv, options);
  if (qk_norm_ == QkNorm::kPerHead) {
    options.q_norm = q_norm_->weight();
    options.k_norm = k_norm_->weight();
  }
  kernels::Qkv out = kernels::split_norm_rotate(qkv, options);
  out.q = scaled_queries(out.q, options.rope, options.position_ids);
  return out;
}

kernels::Qkv Attention::heads_normed_last(const at::Tensor& qkv,
                                          const kernels::QkvOptions& options) const {
  kernels::Qkv out = kernels::split_norm_rotate(qkv, options);
  out.q = q_norm_->forward(out.q.contiguous());
  out.k = k_norm_->forward(out.k.contiguous());
  return out;
}

/// q and k as they are elsewhere; v of another size, scaled, normed, or k before its norm. q alone
/// where keys are another layer's.
kernels::Qkv Attention::heads_with_other_values(const at::Tensor& qkv,
                                                const kernels::QkvOptions& options) const {
  int64_t row = 0;
  const auto next = [&](int64_t heads, int64_t dim) {
    const at::Tensor rows = qkv.narrow(-1, row, heads * dim);
    row += heads * dim;
    return rows.unflatten(-1, {heads, dim});
  };
  kernels::Qkv out;
  const auto normed_and_rotated = [&](const at::Tensor& x, const nn::RmsNorm* norm) {
    at::Tensor y = x;
    if (norm != nullptr) {
      y = norm->forward(y.contiguous());
    } else if (qk_norm_ == QkNorm::kPlainPerHead) {
      y = kernels::unweighted_rms_norm(y, options.norm.eps);
    }
    if (!options.rope.is_defined()) return y;
    if (is_rope_interleaved_) y = pairs_to_halves(y, options.rope);
    return kernels::rotate(y, options.rope, options.position_ids);
  };
  out.q = normed_and_rotated(next(options.num_heads, options.head_dim), q_norm_.get());
  out.q = scaled_queries(out.q, options.rope, options.position_ids);
  if (!layer_.has_own_keys()) return out;
  const at::Tensor keys = next(options.num_kv_heads, options.head_dim);
  out.v = layer_.are_values_keys ? keys : next(options.num_kv_heads, value_dim_);
  out.k = normed_and_rotated(keys, k_norm_.get());
  if (has_value_norm_) out.v = kernels::unweighted_rms_norm(out.v, options.norm.eps);
  if (value_scale_ != 1.0) out.v = out.v * value_scale_;
  return out;
}

kernels::Qkv Attention::heads_normed_whole(const at::Tensor& qkv,
                                           const kernels::QkvOptions& options) const {
  const int64_t q_size = options.num_heads * options.head_dim;
  const int64_t kv_size = options.num_kv_heads * options.head_dim;
  const auto split = [&](const at::Tensor& x, int64_t heads) {
    return x.view({x.size(0), x.size(1), heads, options.head_dim});
  };
  const at::Tensor q = q_norm_->forward(qkv.narrow(-1, 0, q_size).contiguous());
  const at::Tensor k = k_norm_->forward(qkv.narrow(-1, q_size, kv_size).contiguous());
  const at::Tensor v = clipped(qkv.narrow(-1, q_size + kv_size, kv_size));
  kernels::Qkv out{split(clipped(q), options.num_heads), split(clipped(k), options.num_kv_heads),
                   v.unflatten(-1, {options.num_kv_heads, options.head_dim})};
  if (options.rope.is_defined()) {
    out.q = kernels::rotate(out.q, options.rope, options.position_ids);
    out.k = kernels::rotate(out.k, options.rope, options.position_ids);
  }
  return out;
}

at::Tensor Attention::clipped(const at::Tensor& x) const {
  return qkv_clip_ == 0 ? x : x.clamp(-qkv_clip_, qkv_clip_);
}

/// qkv [B, S, (N + 2 K) H] with LayerNorms of q's and k's heads.
at::Tensor Attention::head_layer_normed(const at::Tensor& qkv) const {
  const int64_t num_q = options_.num_heads;
  const int64_t num_kv = options_.num_kv_heads;
  const at::Tensor heads = qkv.unflatten(-1, {num_q + 2 * num_kv, options_.head_dim});
  const at::Tensor q = heads.narrow(-2, 0, num_q).contiguous();
  const at::Tensor k = heads.narrow(-2, num_q, num_kv).contiguous();
  const at::Tensor v = heads.narrow(-2, num_q + num_kv, num_kv);
  const at::Tensor q_normed = q_layer_norm_ ? q_layer_norm_->forward(q) : q_heads_norm_->forward(q);
  const at::Tensor k_normed = k_layer_norm_ ? k_layer_norm_->forward(k) : k_heads_norm_->forward(k);
  return at::cat({q_normed, k_normed, v.to(q_normed.scalar_type())}, -2).flatten(-2);
}

/// The projection of x: q of all heads, k and v, and what their norms come before.
at::Tensor Attention::projection(const at::Tensor& x) const {
  at::Tensor qkv = qkv_proj_->forward(x);
  if (is_qkv_by_group_) {
    const int64_t num_queries = options_.num_heads / options_.num_kv_heads;  // of a group
    const at::Tensor groups =
        qkv.unflatten(-1, {options_.num_kv_heads, num_queries + 2, options_.head_dim});
    qkv = at::cat(
        {groups.narrow(-2, 0, num_queries).flatten(-3), groups.select(-2, num_queries).flatten(-2),
         groups.select(-2, num_queries + 1).flatten(-2)},
        -1);
  }
  // Norms over all heads together come before the bound.
  return qk_norm_ == QkNorm::kWholeProjection ? qkv : clipped(qkv);
}

void Attention::keep_heads(int part, int num_parts) {
  options_.num_heads /= num_parts;
  options_.num_kv_heads /= num_parts;
  first_head_ = part * options_.num_heads;
}

/// Splits a projection that includes gates into {q, k and v; the queries' gates [B, S, N H] or, one
/// a head, [B, S, N], or one a number of v, [B, S, N V]}.
std::pair<at::Tensor, at::Tensor> Attention::split_gate(const at::Tensor& projected) const {
  if (has_head_gates_) {
    const int64_t count = options_.num_heads * (are_head_gates_wide_ ? value_dim_ : 1);
    const int64_t rows = projected.size(-1) - count;
    return {projected.narrow(-1, 0, rows), projected.narrow(-1, rows, count)};
  }
  const int64_t head_dim = options_.head_dim;
  const int64_t q_rows = 2 * options_.num_heads * head_dim;
  const at::Tensor queries =
      projected.narrow(-1, 0, q_rows).unflatten(-1, {options_.num_heads, 2 * head_dim});
  const at::Tensor kv = projected.narrow(-1, q_rows, projected.size(-1) - q_rows);
  return {at::cat({queries.narrow(-1, 0, head_dim).flatten(-2), kv}, -1),
          queries.narrow(-1, head_dim, head_dim).flatten(-2)};
}

/// What the heads give [B, S, N V], each number or head times its gate's sigmoid or softplus.
at::Tensor Attention::gated(const at::Tensor& heads_out, const at::Tensor& gate) const {
  if (!gate.defined()) return heads_out;
  if (has_gate_) return heads_out * kernels::sigmoid(gate);
  const at::Tensor factor = is_head_gate_softplus_ ? kernels::softplus(gate.contiguous())
                                                   : kernels::sigmoid(gate.contiguous());
  if (are_head_gates_wide_) return heads_out * factor;
  const at::Tensor heads = heads_out.unflatten(-1, {options_.num_heads, value_dim_});
  return (heads * factor.unsqueeze(-1)).flatten(-2);
}

at::Tensor AttentionLayer::forward_shared(const at::Tensor&, const ForwardContext&,
                                          SharedKeys&) const {
  AM_CHECK(false, "this attention has no keys that layers could share");
}

at::Tensor Attention::forward(const at::Tensor& x, const ForwardContext& context) const {
  SharedKeys none;
  return forward_shared(x, context, none);
}

at::Tensor Attention::forward_shared(const at::Tensor& x, const ForwardContext& context,
                                     SharedKeys& shared) const {
  // The output has the whole sequence, even if x is this rank's part.
  at::Tensor projected = projection(x);
  at::Tensor gate;
  if (has_gate_ || has_head_gates_) std::tie(projected, gate) = split_gate(projected);
  kernels::Qkv qkv = heads(projected, context);
  const int64_t batch = projected.size(0);
  const int64_t length = projected.size(1);
  kernels::AttentionOptions options;
  options.scale = layer_.attention_scale;
  options.is_causal = is_causal_;
  options.window = layer_.window;
  options.chunk = layer_.chunk;
  options.softcap = softcap_;
  options.sinks = sinks_;
  options.padding_mask = context.padding_mask;
  options.document_ids = context.document_ids;
  options.visible_keys = context.visible_keys;
  options.dropout =
      attention_dropout(context, dropout_site_, dropout_, first_head_, num_all_heads_);
  // Norms and rotation may have widened the heads' dtype.
  const at::ScalarType dtype = projected.scalar_type();
  if (!layer_.has_own_keys()) {
    std::tie(qkv.k, qkv.v) = std::tie(shared.k, shared.v);
  } else if (layer_.gives_keys) {
    shared = {qkv.k.to(dtype).contiguous(), qkv.v.to(dtype).contiguous()};
    std::tie(qkv.k, qkv.v) = std::tie(shared.k, shared.v);
  }
  at::Tensor q = qkv.q.to(dtype);
  at::Tensor k = qkv.k.to(dtype);
  if (!distance_slopes_.empty()) {
    if (options.scale == 0) options.scale = 1.0 / std::sqrt(static_cast<double>(options_.head_dim));
    const auto first = distance_slopes_.begin() + first_head_;
    std::tie(q, k) = with_distances(q, k, {first, first + options_.num_heads}, context.position_ids,
                                    options.scale);
  }
  const at::Tensor out = core_->attend(q, k, qkv.v.to(dtype), options).out;
  const at::Tensor heads_out = out.reshape({batch, length, options_.num_heads * value_dim_});
  return o_proj_->forward(gated(heads_out, gate));
}

}  // namespace automodel::models::decoder

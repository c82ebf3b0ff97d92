#include "models/t5/t5_attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tensor/memory.h"

namespace automodel::models::t5 {

namespace {

/// The table's row of every distance -(S - 1) .. S - 1 of a key from its query. Near keys have a
/// row each, and farther ones share rows by the logarithm of the distance, in float32 as
/// transformers rounds it.
at::Tensor rows_of_distances(int64_t length, bool is_bidirectional, int64_t num_rows,
                             int64_t max_distance) {
  const at::Tensor distances = at::arange(1 - length, length, at::kLong);
  const int64_t num_own = is_bidirectional ? num_rows / 2 : num_rows;
  const int64_t num_single = num_own / 2;
  const at::Tensor away = is_bidirectional ? distances.abs() : distances.clamp_max(0).neg();
  const double of_range =
      std::log(static_cast<double>(max_distance) / static_cast<double>(num_single));
  const at::Tensor shared =
      ((away.clamp_min(1).to(at::kFloat) / num_single).log() / of_range * (num_own - num_single))
          .to(at::kLong)
          .add(num_single)
          .clamp_max(num_own - 1);
  const at::Tensor rows = at::where(away.lt(num_single), away, shared);
  return is_bidirectional ? rows + distances.gt(0).to(at::kLong) * num_own : rows;
}

std::shared_ptr<nn::Linear> projection(int64_t in, std::vector<int64_t> groups,
                                       at::ScalarType dtype) {
  nn::LinearOptions options{.in_features = in};
  for (const int64_t rows : groups) options.out_features += rows;
  if (groups.size() > 1) options.groups = std::move(groups);
  return std::make_shared<nn::Linear>(options, dtype);
}

}  // namespace

at::Tensor distance_bias(const nn::Embedding& table, int64_t length, bool is_bidirectional,
                         int64_t max_distance) {
  const at::Tensor rows =
      rows_of_distances(length, is_bidirectional, table.options().num_rows, max_distance);
  return table.forward(tensor::moved_to(rows, table.weight().device())).t();
}

SelfAttention::SelfAttention(const T5Config& config, bool is_causal, std::string site,
                             at::ScalarType dtype)
    : is_causal_(is_causal), dropout_(config.dropout), site_(std::move(site)) {
  heads_.num_heads = config.num_heads;
  heads_.num_kv_heads = config.num_heads;
  heads_.head_dim = config.head_dim;
  const int64_t inner = config.inner_dim();
  qkv_proj_ =
      register_module("qkv_proj", projection(config.hidden_size, {inner, inner, inner}, dtype));
  o_proj_ = register_module("o_proj", projection(inner, {config.hidden_size}, dtype));
}

at::Tensor SelfAttention::forward(const at::Tensor& x, const at::Tensor& bias,
                                  const decoder::ForwardContext& context) const {
  const kernels::Qkv qkv = kernels::split_norm_rotate(qkv_proj_->forward(x), heads_);
  kernels::AttentionOptions options;
  options.scale = 1.0;
  options.is_causal = is_causal_;
  options.padding_mask = context.padding_mask;
  options.distance_bias = bias;
  options.dropout = decoder::attention_dropout(context, site_, dropout_, 0, heads_.num_heads);
  return o_proj_->forward(kernels::causal_attention(qkv.q, qkv.k, qkv.v, options).out.flatten(2));
}

CrossAttention::CrossAttention(const T5Config& config, std::string site, at::ScalarType dtype)
    : num_heads_(config.num_heads), dropout_(config.dropout), site_(std::move(site)) {
  const int64_t inner = config.inner_dim();
  q_proj_ = register_module("q_proj", projection(config.hidden_size, {inner}, dtype));
  kv_proj_ = register_module("kv_proj", projection(config.hidden_size, {inner, inner}, dtype));
  o_proj_ = register_module("o_proj", projection(inner, {config.hidden_size}, dtype));
}

at::Tensor CrossAttention::forward(const at::Tensor& x, const decoder::ForwardContext& context,
                                   const at::Tensor& source,
                                   const decoder::ForwardContext& of_source) const {
  const at::Tensor q = q_proj_->forward(x).unflatten(-1, {num_heads_, -1});
  of_source.key_adapters();
  const std::vector<at::Tensor> kv = kv_proj_->forward(source).chunk(2, -1);
  context.key_adapters();
  kernels::AttentionOptions options;
  options.scale = 1.0;
  options.padding_mask = of_source.padding_mask;
  options.dropout = decoder::attention_dropout(context, site_, dropout_, 0, num_heads_);
  const at::Tensor out = kernels::cross_attention(q, kv[0].unflatten(-1, {num_heads_, -1}),
                                                  kv[1].unflatten(-1, {num_heads_, -1}), options)
                             .out;
  return o_proj_->forward(out.flatten(2));
}

}  // namespace automodel::models::t5

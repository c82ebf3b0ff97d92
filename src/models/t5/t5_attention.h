#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "kernels/attention/attention.h"
#include "kernels/layers/rope.h"
#include "models/decoder/forward_context.h"
#include "models/t5/t5_config.h"
#include "nn/layers.h"

// Legend: B sequences, S tokens of a stack, T tokens of the source, N heads, H head size.

namespace automodel::models::t5 {

/// Biases of scores [N, 2 S - 1] by the distance of key and query, as
/// kernels::AttentionOptions::distance_bias wants them, from rows [buckets, N] of a table. A table
/// for both directions has half of its rows for keys behind the query.
at::Tensor distance_bias(const nn::Embedding& table, int64_t length, bool is_bidirectional,
                         int64_t max_distance);

/// Attention to the own stack's tokens, without scaled scores. Parameters in this order: qkv_proj
/// (rows: queries, keys, values), o_proj.
class SelfAttention final : public torch::nn::Module {
 public:
  SelfAttention(const T5Config& config, bool is_causal, std::string site, at::ScalarType dtype);

  /// x [B, S, D] to [B, S, D]; `bias` is distance_bias().
  at::Tensor forward(const at::Tensor& x, const at::Tensor& bias,
                     const decoder::ForwardContext& context) const;

 private:
  bool is_causal_;
  double dropout_;
  std::string site_;  ///< of dropped probabilities
  kernels::QkvOptions heads_;
  std::shared_ptr<nn::Linear> qkv_proj_;
  std::shared_ptr<nn::Linear> o_proj_;
};

/// Attention to what the encoder made of the source. Parameters in this order: q_proj, kv_proj
/// (rows: keys, values), o_proj.
class CrossAttention final : public torch::nn::Module {
 public:
  CrossAttention(const T5Config& config, std::string site, at::ScalarType dtype);

  /// x [B, S, D] and the source's states [B, T, D], with their stacks' contexts, to [B, S, D].
  at::Tensor forward(const at::Tensor& x, const decoder::ForwardContext& context,
                     const at::Tensor& source, const decoder::ForwardContext& of_source) const;

 private:
  int64_t num_heads_;
  double dropout_;
  std::string site_;
  std::shared_ptr<nn::Linear> q_proj_;
  std::shared_ptr<nn::Linear> kv_proj_;
  std::shared_ptr<nn::Linear> o_proj_;
};

}  // namespace automodel::models::t5

#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/layers/dropout.h"

namespace automodel::kernels {

/// Dropout of attention's probabilities; its mask is that of all heads of the layer and of whole
/// sequences, [B, num_heads, S, S].
struct AttentionDropout {
  DropoutMask mask;
  int64_t first_head = 0;  ///< the head of the layer that is q's first
  int64_t num_heads = 0;   ///< of the layer; 0: q's
  /// Tokens of a whole sequence; 0: as many as all ranks have keys. Without ranks it is set by q.
  int64_t length = 0;
  /// The first query's position in the whole sequence, which split sequences set for each block.
  int64_t first_query = 0;

  /// The mask's element of sequence b, q's head `head`, a query counted from the first and the
  /// sequence's first key. All members are set.
  uint64_t first_of(int64_t b, int64_t head, int64_t query) const {
    const int64_t row = (b * num_heads + first_head + head) * length + first_query + query;
    return static_cast<uint64_t>(row * length);
  }
};

/// Options of self-attention.
struct AttentionOptions {
  double scale = 0;       ///< 0: 1 / sqrt(head_dim)
  bool is_causal = true;  ///< false: a query sees the tokens behind it too
  /// Tokens that a query sees, itself and those before it; 0: all. If is_causal is false, as many
  /// on either side (ModernBERT).
  int64_t window = 0;
  /// A query sees only tokens of its own chunk of this many, counted from the first token of what
  /// padding and documents leave it (Llama 4); 0: off. Without a window.
  int64_t chunk = 0;
  double softcap = 0;  ///< scores become cap * tanh(scores / cap); 0: off
  AttentionDropout dropout;
  at::Tensor sinks;         ///< [N], float32 or q's dtype: a score beside the keys' whose value is
                            ///< zero (GPT-OSS); differentiable; or undefined
  at::Tensor padding_mask;  ///< [B, S] bool, true where keys are padding; or undefined
  at::Tensor document_ids;  ///< [B, S]: attention stays inside equal ids; or undefined
  /// [B, S, 2], replaces the two above when the keys are more than these S tokens: positions of the
  /// first key that each query may see and of the one after the last; or undefined.
  at::Tensor visible_keys;
  /// int32 [B, S, C], key_choice.h: positions of the keys that a query sees, if the other options
  /// let it; or undefined: all. Not fused.
  at::Tensor chosen_keys;
  /// [N, 2 S - 1]: added to the scaled scores, column S - 1 + k - q to that of query q and key k
  /// (T5); differentiable; or undefined. Without a softcap.
  at::Tensor distance_bias;
};

struct AttentionResult {
  at::Tensor out;  ///< [B, S, N, V], dtype of q
  at::Tensor lse;  ///< [B, N, S] float32: log of the sum of exp(scores); may be undefined when the
                   ///< plain path was taken and nobody asked
};

/// q [B, S, N, H]; k [B, S, K, H]; v [B, S, K, V], N a multiple of K (query head n uses kv head n /
/// (N / K)). A query sees the tokens up to its own, or all if is_causal is false. Differentiable in
/// q, k and v (lse carries no gradient). Chooses the fastest exact implementation that has the
/// options. Queries that see only padding get zeros; FlashAttention gives them to all
/// queries that are padding.
AttentionResult causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionOptions& options);

/// Attention of q [B, Q, N, H] to another sequence's k [B, T, K, H] and v [B, T, K, V], whose
/// tokens every query sees but for padding [B, T]. Of the options scale, dropout and padding_mask
/// are read; the dropout's length is set here. Differentiable in q, k and v.
AttentionResult cross_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const AttentionOptions& options);

/// causal_attention() by explicit scores and softmax in float32; tests compare the fast paths with
/// it.
AttentionResult causal_attention_reference(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const AttentionOptions& options);

/// cross_attention() likewise.
AttentionResult cross_attention_reference(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const AttentionOptions& options);

}  // namespace automodel::kernels

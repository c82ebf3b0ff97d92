#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kernels/attention/attention.h"
#include "kernels/layers/rope.h"

namespace automodel::kernels {

/// A run of queries against a run of keys of the same sequences; attention over split sequences is
/// composed of such blocks. A query sees keys up to its own position, inside the window and among
/// its visible ones.
struct AttentionBlock {
  double scale = 1;
  int64_t window = 0;       ///< 0: all
  double softcap = 0;       ///< 0: off
  int64_t first_query = 0;  ///< position in the whole sequence
  int64_t first_key = 0;
  /// [B, queries, 2] int64, on the CPU or on q's device: positions of the first key that a query
  /// may see and of the one after the last; undefined: all keys.
  at::Tensor visible_keys;
  bool adds = false;  ///< merge with other blocks' results
  /// Only for blocks that the loops or a device's kernels compute; all members are set.
  AttentionDropout dropout;
  /// int32 [B, queries, C]: positions of the only keys that a query may see; undefined: all. The
  /// loops do not compute it.
  at::Tensor chosen_keys;
  /// [N, Q + T - 1] of the result's lse's dtype, contiguous: added to the scaled scores, column
  /// Q - 1 + k - q to that of the block's query q and key k, both from 0; undefined: nothing.
  at::Tensor distance_bias;
  bool has_others_keys = false;  ///< keys are other tokens than the queries (cross-attention)
  /// Most scores that ATen's operations hold at once: queries are computed in pieces.
  int64_t max_scores = kMaxScores;

  static constexpr int64_t kMaxScores = int64_t{1} << 25;
};

/// The number of queries that ATen's operations compute at once, of `num_queries` with
/// `scores_per_query` scores each (sequences x heads x keys).
int64_t num_queries_at_once(int64_t num_queries, int64_t scores_per_query, int64_t max_scores);

/// Whether any query is at or after any key, inside the window.
bool has_visible_pair(const AttentionBlock& block, int64_t num_queries, int64_t num_keys);

/// q [B, Q, N, H], k [B, T, K, H], v [B, T, K, V]; the last dims are contiguous. Writes result.out
/// [B, Q, N, V] and result.lse [B, N, Q] in float32 (float64 for float64 queries). A block that
/// adds merges into their values, which then cover the keys of all blocks. A block that is the only
/// one may write result.out in q's dtype. Queries that have seen nothing get zeros and -inf. Not
/// differentiable.
void attend_block(const AttentionBlock& block, const Qkv& qkv, AttentionResult& result);

/// Attention of the last tokens q [B, Q, N, H] of sequences to the keys of all their tokens, k
/// [B, T, K, H] and v [B, T, K, V]. Of the options scale, softcap, sinks and visible_keys
/// ([B, Q, 2], places among the keys, which a window is part of) are read. `out` has q's dtype. Not
/// differentiable.
AttentionResult attention_of_last(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionOptions& options);

/// Whether the CPU's loops compute a block.
bool has_attention_loops(const AttentionBlock& block, const Qkv& qkv);

/// Whether attention of q's dtype on its device can drop probabilities without a mask in memory.
bool has_attention_dropout(const at::Tensor& q);

/// causal_attention without holding all scores at once, on any device and in any dtype; devices
/// other than the CPU use it. nullopt when it does not apply: with dropout (unless
/// has_attention_dropout), and with padding or documents that leave some query's keys in several
/// runs.
std::optional<AttentionResult> causal_attention_by_blocks(const at::Tensor& q, const at::Tensor& k,
                                                          const at::Tensor& v,
                                                          const AttentionOptions& options);

/// Adds the block's share to the gradients of q, k and v, which have the dtype of result.lse.
/// `result` is that of all blocks; d_out [B, Q, N, V], its gradient, has the dtype of result.out.
/// Adds each sequence's share of the gradient of a distance_bias to `bias_gradients`
/// [B, N, Q + T - 1], which it must have then.
void attend_block_backward(const AttentionBlock& block, const Qkv& qkv,
                           const AttentionResult& result, const at::Tensor& d_out, Qkv& gradients,
                           const at::Tensor& bias_gradients = {});

/// Adds each head's sink [N] to the softmax of a complete result.
void add_sinks(const at::Tensor& sinks, AttentionResult& result);

/// The sinks' gradient, from the result that includes them and the result's gradient.
at::Tensor sinks_gradient(const at::Tensor& sinks, const AttentionResult& result,
                          const at::Tensor& d_out);

}  // namespace automodel::kernels

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kernels/attention.h"
#include "kernels/rope.h"

namespace automodel::kernels {

/// A run of queries against a run of keys of the same sequences: the piece that attention over
/// split sequences is put together from. A query sees the keys up to its own position, inside the
/// window and among its visible ones.
struct AttentionBlock {
  double scale = 1;
  int64_t window = 0;       ///< 0: all
  double softcap = 0;       ///< 0: off
  int64_t first_query = 0;  ///< position in the whole sequence
  int64_t first_key = 0;
  /// [B, queries, 2] int64, on the CPU or where q is: positions of the first key that a query may
  /// see and of the one behind the last; undefined: all keys.
  at::Tensor visible_keys;
  bool adds = false;  ///< to what other blocks have given
  /// [B, N, queries, keys] bool: probabilities that dropout keeps, times kept_scale; undefined:
  /// all. Of a block that is the only one, where the loops run.
  at::Tensor is_kept;
  double kept_scale = 1;
  /// Scores that are there at once where ATen's operations compute them: queries go piece by piece.
  int64_t max_scores = kMaxScores;

  static constexpr int64_t kMaxScores = int64_t{1} << 25;
};

/// Queries that are computed at once where ATen's operations do it, of `num_queries` with
/// `scores_per_query` scores each (sequences x heads x keys).
int64_t num_queries_at_once(int64_t num_queries, int64_t scores_per_query, int64_t max_scores);

/// Whether any of the queries comes behind any of the keys, inside the window.
bool has_visible_pair(const AttentionBlock& block, int64_t num_queries, int64_t num_keys);

/// q [B, Q, N, H], k [B, T, K, H], v [B, T, K, V]; the last dims are contiguous. Writes result.out
/// [B, Q, N, V] and result.lse [B, N, Q], float32 (float64 for float64 queries), or, when the block
/// adds, merges into what they hold: the result then is that of the keys of all blocks. A block
/// that is the only one may write result.out in q's dtype. Queries that have seen nothing have
/// zeros and -inf. Not differentiable.
void attend_block(const AttentionBlock& block, const Qkv& qkv, AttentionResult& result);

/// causal_attention where not all of the scores are there at once, on any device and in any dtype:
/// what devices other than the CPU run. nullopt where it cannot be: with dropout but for the loops,
/// and with padding or documents that leave some query's keys in several runs.
std::optional<AttentionResult> causal_attention_by_blocks(const at::Tensor& q, const at::Tensor& k,
                                                          const at::Tensor& v,
                                                          const AttentionOptions& options);

/// Adds the block's share to the gradients of q, k and v. `result` is that of all blocks, d_out
/// [B, Q, N, V] its gradient, of the dtype of result.out; the gradients are of that of result.lse.
void attend_block_backward(const AttentionBlock& block, const Qkv& qkv,
                           const AttentionResult& result, const at::Tensor& d_out, Qkv& gradients);

/// Lets each head's sink [N] take part in the softmax of a result that is complete.
void add_sinks(const at::Tensor& sinks, AttentionResult& result);

/// The sinks' gradient, from the result that they took part in and its gradient.
at::Tensor sinks_gradient(const at::Tensor& sinks, const AttentionResult& result,
                          const at::Tensor& d_out);

/// What padding [B, S] and document ids [B, S] (either may be undefined) leave visible, as
/// AttentionBlock has it; undefined when neither is given; nullopt when the keys of some query are
/// no single run: documents that begin again, or padding between the tokens of one.
std::optional<at::Tensor> visible_keys(const at::Tensor& padding_mask,
                                       const at::Tensor& document_ids);

}  // namespace automodel::kernels

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace automodel::kernels {

/// What an indexer knows of a query and of a key (DeepSeek-V3.2's sparse attention). The score of a
/// key is the sum over heads of weight * relu(q . k * scale).
struct IndexerScores {
  at::Tensor q;        ///< [B, S, N, D]
  at::Tensor k;        ///< [B, T, D], shared by the heads; T is S unless visible_keys are given
  at::Tensor weights;  ///< [B, S, N]
  double scale = 1;
};

struct KeyChoiceOptions {
  int64_t num_chosen = 0;   ///< keys of each query
  at::Tensor padding_mask;  ///< [B, S] bool, true where keys are padding; or undefined
  at::Tensor document_ids;  ///< [B, S]: only keys of equal ids are choosable; or undefined
  /// [B, S, 2] int64, in place of the two above and of causality: the first key that each query may
  /// see and the one after the last; or undefined.
  at::Tensor visible_keys;
  /// Most scores of heads that are held at once: queries are computed in pieces.
  int64_t max_scores = int64_t{1} << 25;
};

/// The positions of each query's best keys, int32 [B, S, num_chosen], in no order, for
/// AttentionOptions::chosen_keys. Where a query may see fewer keys, the rest are some that it may
/// not see. Undefined when no query may see more than num_chosen, for all are chosen then. Scores
/// are float32, or float64 with float64 queries, and never all in memory. Not differentiable.
at::Tensor choose_keys(const IndexerScores& scores, const KeyChoiceOptions& options);

}  // namespace automodel::kernels

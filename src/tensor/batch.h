#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace automodel::tensor {

/// Consecutive positions of a sequence.
struct PositionRun {
  int64_t first = 0;
  int64_t count = 0;

  bool operator==(const PositionRun&) const = default;
};

/// What holders of a part of every sequence's tokens must know of the whole.
struct SequencePart {
  int64_t length = 0;             ///< of a whole sequence, without what was added to split it
  int64_t num_positions = 0;      ///< one more than the largest position id of the whole batch
  std::vector<PositionRun> runs;  ///< where the part's tokens stand in the whole, in order
};

/// One micro-batch as the model takes it. B sequences of S tokens, int64, on the model's device.
struct Batch {
  at::Tensor input_ids;  ///< [B, S]
  at::Tensor labels;  ///< [B, S], already shifted: labels[b, s] is the token after input_ids[b, s]
  at::Tensor position_ids;  ///< [B, S], or undefined: 0, 1, ... in every sequence
  at::Tensor padding_mask;  ///< [B, S] bool, true at padding; or undefined: no padding
  at::Tensor document_ids;  ///< [B, S], or undefined: attention stays inside equal ids (packing)

  /// Set when B sequences of S tokens are a part of longer ones (context parallelism).
  std::optional<SequencePart> part;
  /// [B, S, 2], or undefined. In a part, padding_mask and document_ids say nothing of the other
  /// tokens: these are the positions in the whole of the first token that each may attend to and
  /// of the one behind the last.
  at::Tensor visible_keys;

  /// The batch on a device; itself where it is there already.
  Batch to(at::Device device) const;

  /// `count` of the sequences from `first` on; they share the batch's memory.
  Batch sequences(int64_t first, int64_t count) const;

  int64_t num_sequences() const { return input_ids.size(0); }
  int64_t sequence_length() const { return input_ids.size(1); }
};

/// What one optimizer step is divided by and reports.
struct TokenCounts {
  int64_t num_tokens = 0;        ///< without the padding at the ends of sequences
  int64_t num_label_tokens = 0;  ///< labels that count in the loss
};

}  // namespace automodel::tensor

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

/// What the holder of a part of every sequence's tokens must know about the whole.
struct SequencePart {
  int64_t length = 0;             ///< of a whole sequence, without padding added to split it
  int64_t num_positions = 0;      ///< the largest position id of the whole batch, plus 1
  std::vector<PositionRun> runs;  ///< positions of the part's tokens in the whole, in order

  int64_t num_tokens() const;  ///< of the part, in each sequence

  /// Positions, in the whole, of the `index`-th run of `count` of the part's tokens, for one of
  /// several that hold equal runs of them: positions of the last one may continue past the end.
  std::vector<PositionRun> run_of_tokens(int64_t index, int64_t count) const;
};

/// One micro-batch in the model's form: B sequences of S tokens, int64, on the model's device.
struct Batch {
  at::Tensor input_ids;  ///< [B, S]
  at::Tensor labels;  ///< [B, S], already shifted: labels[b, s] is the token after input_ids[b, s]
  at::Tensor position_ids;  ///< [B, S], or undefined: 0, 1, ... in every sequence
  at::Tensor padding_mask;  ///< [B, S] bool, true at padding; or undefined: no padding
  at::Tensor document_ids;  ///< [B, S], or undefined: attention stays inside equal ids (packing)

  /// Set when B sequences of S tokens are a part of longer ones (context parallelism).
  std::optional<SequencePart> part;
  /// [B, S, 2], or undefined. In a part, padding_mask and document_ids do not cover the other
  /// tokens; instead these are the positions, in the whole, of the first token that each token may
  /// attend to and of the one after the last.
  at::Tensor visible_keys;
  /// The largest of position_ids, plus 1, where they are not in the host's memory. Absent: unknown.
  std::optional<int64_t> num_positions;
  /// int64 [N], places in the flat labels of those that count in the loss, which a device need not
  /// be asked for then; or undefined: unknown, or all or none of them count.
  at::Tensor scored;
  at::Tensor token_types;  ///< [B, S], or undefined: 0 for all; only encoders read them
  /// int64 [B, T]: what the encoder of an encoder-decoder reads, whose decoder's are the tokens
  /// above; or undefined: the model has no encoder.
  at::Tensor source_ids;
  at::Tensor source_padding;  ///< [B, T] bool, true at padding; or undefined: no padding

  /// The batch on a device; the same batch if it is there already.
  Batch to(at::Device device) const;

  /// `count` of the sequences, beginning at `first`; they share the batch's memory.
  Batch sequences(int64_t first, int64_t count) const;

  /// The largest position id of the whole batch, plus 1. Where the host does not know it, it is
  /// read from position_ids, which waits for their device.
  int64_t needed_positions() const;

  int64_t num_sequences() const { return input_ids.size(0); }
  int64_t sequence_length() const { return input_ids.size(1); }
};

/// The token counts of an optimizer step: what losses are divided by, and what is reported.
struct TokenCounts {
  int64_t num_tokens = 0;        ///< without the padding at the ends of sequences
  int64_t num_label_tokens = 0;  ///< labels that count in the loss
};

}  // namespace automodel::tensor

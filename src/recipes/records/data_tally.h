#pragma once

#include <array>
#include <cstdint>

#include "core/json.h"
#include "tensor/batch.h"

namespace automodel::recipes {

/// Counts what a rank trains on, from its batches: one or two nanoseconds a token.
class DataTally final {
 public:
  /// Tokens with the label `ignore_index` do not count in the loss.
  explicit DataTally(int64_t ignore_index) : ignore_index_(ignore_index) {}

  /// Adds a batch that is on the CPU.
  void add(const tensor::Batch& batch);

  int64_t num_sequences() const { return num_sequences_; }

  /// All batches so far: {"num_sequences", "num_tokens" (without padding), "num_label_tokens",
  /// "num_padding_tokens", "num_documents", "lengths": [[UPPER_BOUND, COUNT], ...]}. A document is
  /// a sequence's tokens without padding, or in a pack those of one sample. Lengths are counted up
  /// to powers of two; bounds that none is counted at are left out.
  Json record() const;

 private:
  void add_document(int64_t length);

  int64_t ignore_index_;
  int64_t num_sequences_ = 0;
  int64_t num_tokens_ = 0;
  int64_t num_label_tokens_ = 0;
  int64_t num_padding_tokens_ = 0;
  int64_t num_documents_ = 0;
  std::array<int64_t, 64> lengths_{};  // [i]: above 2^(i - 1), at most 2^i
};

}  // namespace automodel::recipes

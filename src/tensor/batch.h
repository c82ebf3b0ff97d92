#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace automodel::tensor {

/// One micro-batch as the model takes it. B sequences of S tokens, int64, on the model's device.
struct Batch {
  at::Tensor input_ids;  ///< [B, S]
  at::Tensor labels;  ///< [B, S], already shifted: labels[b, s] is the token after input_ids[b, s]
  at::Tensor position_ids;  ///< [B, S], or undefined: 0, 1, ... in every sequence
  at::Tensor padding_mask;  ///< [B, S] bool, true at padding; or undefined: no padding
  at::Tensor document_ids;  ///< [B, S], or undefined: attention stays inside equal ids (packing)

  /// The batch on a device; itself where it is there already.
  Batch to(at::Device device) const;

  int64_t num_sequences() const { return input_ids.size(0); }
  int64_t sequence_length() const { return input_ids.size(1); }
};

/// What one optimizer step is divided by and reports.
struct TokenCounts {
  int64_t num_tokens = 0;        ///< without the padding at the ends of sequences
  int64_t num_label_tokens = 0;  ///< labels that count in the loss
};

}  // namespace automodel::tensor

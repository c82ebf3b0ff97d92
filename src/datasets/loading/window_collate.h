#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "datasets/samples/dataset.h"
#include "tensor/batch.h"

namespace automodel::datasets {

/// How samples of diffusion become a batch; upstream's DLLMCollator.
struct WindowCollaterConfig {
  int64_t pad_id = 0;
  int64_t eos_id = 0;                 ///< fills up a response's last block
  std::optional<int64_t> block_size;  ///< responses are filled to whole blocks; absent: not
  std::optional<int64_t> pad_seq_len_divisible;  ///< of the batch's length, with block_size's
  std::optional<int64_t> max_length;             ///< of samples and of the batch
  bool supervises_padding = false;
  /// Upstream's response-window mode: a sample is one response behind one prompt, blocks are
  /// counted from the response's beginning, and what fills them is attended to. Else blocks are
  /// counted from the sample's beginning.
  bool has_responses = true;
};

/// Collates unshifted samples (a label that counts is the token at its own place) to input_ids and
/// labels [B, S] and padding_mask, which is always defined. Each sample is followed by
/// end-of-sequence tokens that fill it to whole blocks and are counted, then by padding. A response
/// begins at the first label. Throws InputError for a response with labels in several runs, i.e. a
/// conversation of several turns.
tensor::Batch window_collater(std::span<const Sample> samples, const WindowCollaterConfig& config);

}  // namespace automodel::datasets

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "datasets/dataset.h"
#include "tensor/batch.h"

namespace automodel::datasets {

/// How samples of block diffusion become a batch; upstream's DLLMCollator in response-window mode.
struct WindowCollaterConfig {
  int64_t pad_id = 0;
  int64_t eos_id = 0;                 ///< fills a response's last block
  std::optional<int64_t> block_size;  ///< responses are filled to whole blocks; absent: not
  std::optional<int64_t> pad_seq_len_divisible;  ///< of the batch's length, with block_size's
  std::optional<int64_t> max_length;             ///< nothing is longer
  bool supervises_padding = false;
};

/// Samples that are not shifted (labels[i] is the token itself where it counts) as input_ids and
/// labels [B, S], padding_mask always there: each sample, then end-of-sequence tokens that fill its
/// response to whole blocks, counted and attended to, then padding. A response begins at the first
/// label. InputError for labels in several runs: a conversation of several turns.
tensor::Batch window_collater(std::span<const Sample> samples, const WindowCollaterConfig& config);

}  // namespace automodel::datasets

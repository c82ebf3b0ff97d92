#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <tuple>

#include "core/field.h"
#include "datasets/samples/dataset.h"
#include "datasets/samples/most_tokens.h"
#include "tensor/batch.h"

namespace automodel::datasets {

/// Options of default_collater.
struct CollaterConfig {
  std::optional<int64_t> pad_seq_len_divisible = std::nullopt;

  static constexpr auto fields() {
    return std::tuple{field("pad_seq_len_divisible", &CollaterConfig::pad_seq_len_divisible,
                            "pad batches to a multiple of this many tokens")
                          .at_least(1)
                          .at_most(kMostTokens)};
  }
};

/// Pads samples to the longest of them, or to the next multiple of pad_seq_len_divisible: input_ids
/// [B, S] with the first sample's pad id, labels [B, S] with kIgnoreIndex. padding_mask is true at
/// padding; undefined when there is none. Batches of packs also have position_ids, which restart at
/// 0 in every document, and document_ids, 0, 1, ... in every pack. Sources are padded likewise.
/// CPU, int64. Runs on the calling thread.
tensor::Batch default_collater(std::span<const Sample> samples, const CollaterConfig& config = {});

/// torch's default_collate: stacks samples of equal length; throws InputError for others.
tensor::Batch stack_collater(std::span<const Sample> samples);

}  // namespace automodel::datasets

#pragma once

#include <string_view>

#include "models/decoder/decoder_config.h"
#include "nn/parallel_plan.h"

namespace automodel::models::decoder {

/// Why layers with a state cannot be split over a sequence's positions.
inline constexpr std::string_view kNoContextParallelState =
    "layers that carry a state from token to token (gated delta nets, Mamba, short "
    "convolutions) are not in this version with cp_size > 1";

/// Why a model with an indexer cannot be split over a sequence's positions.
inline constexpr std::string_view kNoContextParallelIndexer =
    "sparse attention, whose indexer chooses among all of a sequence's keys, is not in this "
    "version with cp_size > 1";

/// Why attention in both directions cannot be split over a sequence's positions.
inline constexpr std::string_view kNoContextParallelBothWays =
    "attention to later tokens, as encoders and diffusion language models have it, is not in this "
    "version with "
    "cp_size > 1";

/// Why compressed attention cannot be split over a sequence's positions.
inline constexpr std::string_view kNoContextParallelCompression =
    "attention to keys that are made of windows of tokens (DeepSeek V4) is not in this version "
    "with cp_size > 1";

/// Why attention by chunks cannot be split over a sequence's positions.
inline constexpr std::string_view kNoContextParallelChunks =
    "attention to the tokens of a query's own chunk (attention_chunk_size) is not in this version "
    "with cp_size > 1";

/// The shared decoder's plan: blocks, embedding, final norm, head and the tensor-parallel rules
/// that hold for every family.
nn::ParallelPlan make_parallel_plan(const DecoderConfig& config);

}  // namespace automodel::models::decoder

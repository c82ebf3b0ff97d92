#pragma once

#include "models/decoder/family.h"

namespace automodel::models::gpt2 {

/// GPT-2: LayerNorm, learned positions, projections stored [in, out], dropout.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::gpt2

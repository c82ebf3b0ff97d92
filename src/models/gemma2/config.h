#pragma once

#include "models/decoder/family.h"

namespace automodel::models::gemma2 {

/// Gemma 2: soft caps, every other layer slides, norms around each branch.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::gemma2

#pragma once

#include "models/decoder/family.h"

namespace automodel::models::qwen2 {

/// Qwen 2 and 2.5: biases on q, k and v; a window in the upper layers when asked for.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::qwen2

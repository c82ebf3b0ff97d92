#pragma once

#include "models/decoder/family.h"

namespace automodel::models::qwen3 {

/// Qwen 3: q and k normed per head.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::qwen3

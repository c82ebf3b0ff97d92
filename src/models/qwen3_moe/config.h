#pragma once

#include "models/decoder/family.h"

namespace automodel::models::qwen3_moe {

/// Qwen 3 with experts: scores by softmax, then the best ones; no shared experts.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::qwen3_moe

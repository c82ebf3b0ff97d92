#pragma once

#include "models/decoder/family.h"

namespace automodel::models::gpt_oss {

/// GPT-OSS: attention sinks, alternating windows, biases everywhere, clamped gates; a softmax over
/// the chosen experts.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::gpt_oss

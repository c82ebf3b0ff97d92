#pragma once

#include "models/decoder/family.h"

namespace automodel::models::deepseek_v3 {

/// DeepSeek V3 (also Moonlight, Kimi K2): latent attention, sigmoid scores with a correction for
/// the choice, groups, shared experts, dense first layers.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::deepseek_v3

#pragma once

#include "models/decoder/family.h"

namespace automodel::models::glm4_moe {

/// GLM 4.5: sigmoid scores with a correction for the choice, groups, shared experts, dense
/// first layers, partial rotation.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::glm4_moe

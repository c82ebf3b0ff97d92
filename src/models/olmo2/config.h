#pragma once

#include "models/decoder/family.h"

namespace automodel::models::olmo2 {

/// OLMo 2: norms after each branch, q and k normed over all heads together.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::olmo2

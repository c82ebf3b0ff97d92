#pragma once

#include "models/decoder/family.h"

namespace automodel::models::mixtral {

/// Mixtral: scores by softmax, the chosen ones rescaled to sum to one.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::mixtral

#pragma once

#include "models/decoder/family.h"

namespace automodel::models::phi3 {

/// Phi-3 and Phi-4: fused projections in the checkpoint, longrope, partial rotation.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::phi3

#pragma once

#include "models/decoder/family.h"

namespace automodel::models::gemma3 {

/// Gemma 3's text model: q and k normed per head, sliding layers with a theta of their own.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::gemma3

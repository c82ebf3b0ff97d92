#pragma once

#include "models/decoder/family.h"

namespace automodel::models::mistral {

/// Mistral: Llama with a window in every layer.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::mistral

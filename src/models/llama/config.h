#pragma once

#include "models/decoder/family.h"

namespace automodel::models::llama {

/// Llama: the baseline, with optional biases.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);
nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config);
tensor::KeyMap key_map(const decoder::DecoderConfig& config);

}  // namespace automodel::models::llama

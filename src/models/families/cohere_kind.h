#pragma once

#include "models/decoder/config_reader.h"
#include "models/decoder/hf_names.h"

namespace automodel::models::decoder {

/// Cohere's options, with every layer rotated.
DecoderConfig read_cohere_kind(ConfigReader& reader, double theta);

/// Attention and MLP have one norm before both.
inline constexpr HfNames kCohereNames = {.mlp_pre_norm = ""};

}  // namespace automodel::models::decoder

#pragma once

#include "models/decoder/config_reader.h"
#include "models/decoder/hf_names.h"

namespace automodel::models::decoder {

/// Cohere's options, with every layer rotated. `head_dim` is that of the config's class; 0:
/// hidden_size / num_attention_heads.
DecoderConfig read_cohere_kind(ConfigReader& reader, double theta, int64_t head_dim = 0);

/// Attention and MLP have one norm before both.
inline constexpr HfNames kCohereNames = {.mlp_pre_norm = ""};

}  // namespace automodel::models::decoder

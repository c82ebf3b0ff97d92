#pragma once

#include "models/decoder/config_reader.h"
#include "models/decoder/hf_names.h"

namespace automodel::models::decoder {

/// Reads what Gemma 2 and Gemma 3 have in common: norms around each branch, the scales of embedding
/// and scores, biases of attention. Each family reads its own soft caps, windows and rotary
/// embeddings.
DecoderConfig read_gemma2_kind(ConfigReader& reader, int64_t max_positions);

/// Read Gemma 2's and Gemma 3's text models, whose options other families begin with.
DecoderConfig read_gemma2(ConfigReader& reader);
DecoderConfig read_gemma3(ConfigReader& reader);

/// Their tensors' names: a norm before and one after each branch.
inline constexpr HfNames kGemmaKindNames{.attention_post_norm = "post_attention_layernorm",
                                         .mlp_pre_norm = "pre_feedforward_layernorm",
                                         .mlp_post_norm = "post_feedforward_layernorm"};

}  // namespace automodel::models::decoder

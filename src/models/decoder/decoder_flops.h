#pragma once

#include "models/decoder/decoder_config.h"

namespace automodel::models::decoder {

// Floating-point operations of forward and backward (three forwards) of `num_sequences` sequences
// of `length` tokens, by upstream's formulas.

/// Inner size of a layer's MLP, or of the chosen and shared experts that a token goes through; 0
/// in a layer without.
int64_t mlp_inner_size(const DecoderConfig& config, const LayerOptions& layer);

/// GPT-3's: an MLP of 4 hidden sizes.
double gpt_flops(const DecoderConfig& config, double num_sequences, double length);

/// Llama's, which takes hidden_size as the width of all heads.
double llama_flops(const DecoderConfig& config, double num_sequences, double length);

/// Qwen 3's, which heeds the size of heads.
double gated_flops(const DecoderConfig& config, double num_sequences, double length);

}  // namespace automodel::models::decoder

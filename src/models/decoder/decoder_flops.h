#pragma once

#include "models/decoder/decoder_config.h"

namespace automodel::models::decoder {

// Floating-point operations of forward and backward (three forwards) of `num_sequences` sequences
// of `length` tokens, by upstream's formulas.

/// Inner size of a layer's MLP, or the sum over the chosen and shared experts of a token; 0 for a
/// layer without either.
int64_t mlp_inner_size(const DecoderConfig& config, const LayerOptions& layer);

/// Operations of one layer of latent attention, where a query sees `keys` keys.
double latent_layer_flops(const DecoderConfig& config, double num_sequences, double length,
                          double keys);

/// Operations of one gated delta net, its state's included.
double gated_delta_flops(const DecoderConfig& config, double num_sequences, double length);

/// Operations of the MLPs or experts of all layers, and of the head.
double mlps_and_head_flops(const DecoderConfig& config, double num_sequences, double length);

/// GPT-3's formula: an MLP of 4 hidden sizes.
double gpt_flops(const DecoderConfig& config, double num_sequences, double length);

/// Llama's formula, which takes hidden_size as the width of all heads.
double llama_flops(const DecoderConfig& config, double num_sequences, double length);

/// Qwen 3's formula, which uses the size of heads.
double gated_flops(const DecoderConfig& config, double num_sequences, double length);

/// Step 3.5's formula: the pairs of queries and keys that each layer's attention has, of its own
/// heads; gates and routers are left out.
double layered_flops(const DecoderConfig& config, double num_sequences, double length);

/// Nemotron's formula, of MLPs without gates, with the size of heads.
double ungated_flops(const DecoderConfig& config, double num_sequences, double length);

/// Operations of all Mamba-2 layers: their projections, and their scan, which is seven operations
/// per element of the state.
double mamba_flops(const DecoderConfig& config, double num_sequences, double length);

/// Step 3.5's formula for layers of attention, with Mamba-2 or short convolutions in others.
double hybrid_flops(const DecoderConfig& config, double num_sequences, double length);

/// DeepSeek V3.2's and GLM 5's formula: attention to the indexer's choice of keys, and an indexer
/// in every layer, trained or not.
double sparse_latent_flops(const DecoderConfig& config, double num_sequences, double length);

}  // namespace automodel::models::decoder

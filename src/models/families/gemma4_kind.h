#pragma once

#include <cstdint>
#include <vector>

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

/// The sizes in which layers of one model of the Gemma 4 kind differ.
struct Gemma4Layer {
  int64_t head_dim = 0;
  int64_t num_kv_heads = 0;
  bool is_sliding = false;  ///< it has a window; the others are full
};

/// Reads what the text models of Gemma 4 and DiffusionGemma have in common: sizes, norms, the scale
/// of embeddings. Their layers, rotary embeddings and soft cap are not set.
DecoderConfig read_gemma4_kind(ConfigReader& reader, int64_t max_positions);

/// Reads which layers have a window (of layer_types, or five of six; the last layer is a full one
/// whatever layer_types has, as transformers makes it) and their heads: of per_layer_config, as
/// transformers writes it, else full layers have heads of global_head_dim, and where keys are their
/// values num_global_key_value_heads of them.
std::vector<Gemma4Layer> read_gemma4_layers(ConfigReader& reader, const DecoderConfig& config,
                                            bool are_values_keys);

/// Reads experts beside an MLP: softmax of all scores, the chosen ones' divided by their sum.
moe::MoEConfig read_gemma4_experts(ConfigReader& reader, const DecoderConfig& config);

/// Sets a window for the layers that have one, no scale of scores beside the norms of queries and
/// keys, and rope 0 for full layers, of which a part rotates, and rope 1 for the others.
void set_gemma4_layers(ConfigReader& reader, const std::vector<Gemma4Layer>& layers, int64_t window,
                       DecoderConfig& config);

}  // namespace automodel::models::decoder

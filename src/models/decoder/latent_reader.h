#pragma once

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

/// Defaults of a family's config class.
struct LatentDefaults {
  int64_t q_rank = 1536;
  int64_t kv_rank = 512;
  int64_t plain_dim = 128;
  int64_t rotated_dim = 64;
  int64_t value_dim = 128;
  bool has_rope = true;               ///< else no layer rotates
  bool reads_interleaving = true;     ///< rope_interleave has an effect; else pairs are neighbours
  bool scales_queries = false;        ///< llama_4_scaling_beta has an effect
  bool is_partial_of_heads = false;   ///< partial_rotary_factor is of all dims of a head of q and k
  const Json* absent_rope = nullptr;  ///< rope_parameters of a config.json without any
};

/// Sets DeepSeek's latent attention in all layers, with its rotation, if any, and the scale of its
/// scores.
void add_latent_attention(ConfigReader& reader, DecoderConfig& config,
                          const LatentDefaults& defaults);

/// Defaults of a family's config class.
struct IndexerDefaults {
  int64_t num_heads = 64;
  int64_t head_dim = 128;
  int64_t num_chosen = 2048;
  bool is_rope_interleaved = false;  ///< where the key indexer_rope_interleave is absent
  bool can_share = false;            ///< indexer_types and what it is made of have an effect
};

/// Adds an indexer to latent attention: to all layers, or to those that do not share an earlier
/// one's choice.
void add_indexer(ConfigReader& reader, DecoderConfig& config, const IndexerDefaults& defaults);

}  // namespace automodel::models::decoder

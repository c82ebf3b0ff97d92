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
};

/// Sets DeepSeek's latent attention in all layers, with its rotation and the scale of its scores.
void add_latent_attention(ConfigReader& reader, DecoderConfig& config,
                          const LatentDefaults& defaults);

}  // namespace automodel::models::decoder

#include "models/decoder/latent_reader.h"

#include <cmath>

namespace automodel::models::decoder {

namespace {

LatentAttentionOptions read_sizes(ConfigReader& reader, const LatentDefaults& defaults) {
  LatentAttentionOptions sizes;
  // Here null has a meaning of its own: queries have no narrow projection.
  const bool has_null = reader.json().contains("q_lora_rank") && !reader.has("q_lora_rank");
  sizes.q_rank = has_null ? 0 : reader.size("q_lora_rank", defaults.q_rank);
  sizes.kv_rank = reader.size("kv_lora_rank", defaults.kv_rank);
  sizes.plain_dim = reader.size("qk_nope_head_dim", defaults.plain_dim);
  sizes.rotated_dim = reader.size("qk_rope_head_dim", defaults.rotated_dim);
  sizes.value_dim = reader.size("v_head_dim", defaults.value_dim);
  sizes.is_rope_interleaved = reader.flag("rope_interleave", true);
  return sizes;
}

/// The scale of attention's scores: 1 / sqrt(dims of a head of q), times the square of YaRN's
/// factor where there is one.
double attention_scale(const DecoderConfig& config) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(config.qk_dim()));
  const nn::RopeOptions& rope = config.ropes[0];
  const bool is_scaled = rope.type != nn::RopeType::kDefault && rope.mscale_all_dim != 0 &&
                         rope.factor.value_or(1.0) > 1.0;
  if (!is_scaled) return scale;
  const double factor = 0.1 * rope.mscale_all_dim * std::log(*rope.factor) + 1.0;
  return scale * factor * factor;
}

}  // namespace

void add_latent_attention(ConfigReader& reader, DecoderConfig& config,
                          const LatentDefaults& defaults) {
  config.latent_attention = read_sizes(reader, defaults);
  config.head_dim = config.latent_attention->rotated_dim;
  config.num_kv_heads = config.num_heads;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  add_rope(reader, config, {});
  for (LayerOptions& layer : config.layers) layer.attention_scale = attention_scale(config);
}

}  // namespace automodel::models::decoder

#include <cmath>

#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

LatentAttentionOptions read_latent_attention(ConfigReader& reader) {
  LatentAttentionOptions sizes;
  // A null is a meaning of its own here: queries have no narrow projection.
  const bool has_null = reader.json().contains("q_lora_rank") && !reader.has("q_lora_rank");
  sizes.q_rank = has_null ? 0 : reader.size("q_lora_rank", 1536);
  sizes.kv_rank = reader.size("kv_lora_rank", 512);
  sizes.plain_dim = reader.size("qk_nope_head_dim", 128);
  sizes.rotated_dim = reader.size("qk_rope_head_dim", 64);
  sizes.value_dim = reader.size("v_head_dim", 128);
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

DecoderConfig read_deepseek_v3(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.requires_kv_heads = false, .head_dim = 64, .max_positions = 4096});
  config.latent_attention = read_latent_attention(reader);
  config.head_dim = config.latent_attention->rotated_dim;
  config.num_kv_heads = config.num_heads;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  add_rope(reader, config, {});
  for (LayerOptions& layer : config.layers) layer.attention_scale = attention_scale(config);

  add_corrected_experts(reader, config,
                        {.keys = {.num_experts = "n_routed_experts",
                                  .num_experts_alias = "num_local_experts",
                                  .default_num_experts = 256,
                                  .default_inner_dim = 2048,
                                  .default_num_chosen = 8},
                         .groups = {.num_groups = 8, .num_limited = 4},
                         .route_scale = 2.5,
                         .num_dense = 3,
                         .bias_update_factor = 1e-3});
  return config;
}

}  // namespace

/// DeepSeek V3 (also Moonlight, Kimi K2): latent attention, sigmoid scores with a correction for
/// the choice, groups, shared experts, dense first layers.
extern const Family kDeepseekV3{
    .architecture = "DeepseekV3ForCausalLM",
    .model_type = "deepseek_v3",
    .config_class = "DeepseekV3Config",
    .layer_class = "DeepseekV3DecoderLayer",
    .experts_class = "DeepseekV3Experts",
    .read_config = read_deepseek_v3,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

#include "models/decoder/family.h"
#include "models/decoder/latent_reader.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_glm4_moe_lite(ConfigReader& reader) {
  DecoderConfig config = read_common(
      reader,
      {.requires_kv_heads = false, .head_dim = 64, .max_positions = 202752, .norm_eps = 1e-5});
  add_latent_attention(reader, config,
                       {.q_rank = 768, .plain_dim = 192, .rotated_dim = 64, .value_dim = 256});
  add_corrected_experts(reader, config,
                        {.keys = {.num_experts = "n_routed_experts",
                                  .num_experts_alias = "num_local_experts",
                                  .default_num_experts = 64,
                                  .default_inner_dim = 1536,
                                  .default_num_chosen = 4},
                         .route_scale = 1.8});
  read_mlp_layer_types(reader, config);
  read_next_token_layers(reader, config);
  return config;
}

}  // namespace

/// GLM 4.7 Flash: DeepSeek V3's latent attention with GLM's layers of experts.
extern const Family kGlm4MoeLite{
    .architecture = "Glm4MoeLiteForCausalLM",
    .model_type = "glm4_moe_lite",
    .config_class = "Glm4MoeLiteConfig",
    .layer_class = "Glm4MoeLiteDecoderLayer",
    .experts_class = "Glm4MoeLiteExperts",
    .read_config = read_glm4_moe_lite,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

#include "models/decoder/family.h"
#include "models/decoder/latent_reader.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_glm_moe_dsa(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false,
                                              .head_dim = 64,
                                              .intermediate_size = 12288,
                                              .max_positions = 202752,
                                              .norm_eps = 1e-5});
  add_latent_attention(
      reader, config,
      {.q_rank = 2048, .plain_dim = 192, .value_dim = 256, .reads_interleaving = false});
  add_indexer(reader, config, {.num_heads = 32, .is_rope_interleaved = true, .can_share = true});
  add_corrected_experts(reader, config,
                        {.keys = {.num_experts = "n_routed_experts",
                                  .num_experts_alias = "num_local_experts",
                                  .default_num_experts = 256,
                                  .default_inner_dim = 2048,
                                  .default_num_chosen = 8},
                         .route_scale = 2.5,
                         .num_dense = 3,
                         .bias_update_factor = 1e-3});
  read_mlp_layer_types(reader, config);
  read_next_token_layers(reader, config);
  return config;
}

}  // namespace

/// GLM 5: DeepSeek V3's latent attention with an indexer, whose choice layers may share, and GLM's
/// layers of experts.
extern const Family kGlmMoeDsa{
    .architecture = "GlmMoeDsaForCausalLM",
    .model_type = "glm_moe_dsa",
    .config_class = "GlmMoeDsaConfig",
    .layer_class = "GlmMoeDsaDecoderLayer",
    .experts_class = "GlmMoeDsaExperts",
    .read_config = read_glm_moe_dsa,
    .flops = sparse_latent_flops,
};

}  // namespace automodel::models::decoder

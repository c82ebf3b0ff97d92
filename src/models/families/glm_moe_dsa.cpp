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
  CorrectedDefaults experts = deepseek_experts();
  experts.groups = {};
  add_corrected_experts(reader, config, experts);
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
    .upstream = {.config_class =
                     "nemo_automodel.components.models.glm_moe_dsa.config.GlmMoeDsaConfig"},
    .read_config = read_glm_moe_dsa,
    .flops = sparse_latent_flops,
};

}  // namespace automodel::models::decoder

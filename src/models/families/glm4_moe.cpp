#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_glm4_moe(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.max_positions = 131072, .norm_eps = 1e-5});
  if (reader.flag("use_qk_norm", false)) config.qk_norm = QkNorm::kPerHead;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  add_rope(reader, config, {.has_partial_default = true, .partial_default = 0.5});

  add_corrected_experts(reader, config,
                        {.keys = {.num_experts = "n_routed_experts",
                                  .num_experts_alias = "num_local_experts",
                                  .default_num_experts = 128,
                                  .default_inner_dim = 1408,
                                  .default_num_chosen = 8}});
  read_next_token_layers(reader, config);
  return config;
}

}  // namespace

/// GLM 4.5: sigmoid scores with a correction for the choice, groups, shared experts, dense
/// first layers, partial rotation.
extern const Family kGlm4Moe{
    .architecture = "Glm4MoeForCausalLM",
    .model_type = "glm4_moe",
    .config_class = "Glm4MoeConfig",
    .layer_class = "Glm4MoeDecoderLayer",
    .experts_class = "Glm4MoeExperts",
    .read_config = read_glm4_moe,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

#include "models/decoder/family.h"
#include "models/families/glm_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_glm4(ConfigReader& reader) {
  DecoderConfig config = read_glm_kind(reader);
  config.norm_placement = NormPlacement::kSandwich;
  return config;
}

}  // namespace

/// GLM 4 (0414): GLM with norms around each branch.
extern const Family kGlm4{
    .architecture = "Glm4ForCausalLM",
    .model_type = "glm4",
    .config_class = "Glm4Config",
    .layer_class = "Glm4DecoderLayer",
    .classifier = "Glm4ForSequenceClassification",
    .read_config = read_glm4,
    .names = {.gate_up = "gate_up_proj",
              .attention_post_norm = "post_self_attn_layernorm",
              .mlp_post_norm = "post_mlp_layernorm"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

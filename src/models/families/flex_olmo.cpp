#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"
#include "models/families/olmo_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_flex_olmo(ConfigReader& reader) {
  DecoderConfig config = read_common(
      reader, {.requires_kv_heads = false, .max_positions = 4096, .padding_idx = 100277});
  config.norm_placement = NormPlacement::kPost;
  config.qk_norm = QkNorm::kWholeProjection;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  add_rope(reader, config, {.theta = 500000.0});
  config.moe = read_olmo_experts(reader, config, {.num_experts = 7, .num_chosen = 5});
  use_experts_from(config, 0);
  return config;
}

}  // namespace

/// FlexOlmo: OLMo 2 with OLMoE's experts in every layer.
extern const Family kFlexOlmo{
    .architecture = "FlexOlmoForCausalLM",
    .model_type = "flex_olmo",
    .config_class = "FlexOlmoConfig",
    .layer_class = "FlexOlmoDecoderLayer",
    .experts_class = "FlexOlmoExperts",
    .read_config = read_flex_olmo,
    .names = kPostNormNames,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_orion(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.requires_kv_heads = false, .max_positions = 4096, .norm_eps = 1e-5});
  config.norm = NormKind::kLayer;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// Orion 14B: Llama with LayerNorms. Of code that comes with the released files.
extern const Family kOrion{
    .architecture = "OrionForCausalLM",
    .model_type = "orion",
    .config_class = "OrionConfig",
    .layer_class = "OrionDecoderLayer",
    .read_config = read_orion,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

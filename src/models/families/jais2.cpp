#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_jais2(ConfigReader& reader) {
  DecoderConfig config = read_common(
      reader, {.requires_kv_heads = false, .max_positions = 8192, .activation = "relu2"});
  config.norm = NormKind::kLayer;
  config.norm_eps = reader.not_negative("layer_norm_eps", 1e-5);
  config.is_mlp_gated = false;
  config.has_qkv_bias = reader.flag("attention_bias", true);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_mlp_bias = reader.flag("mlp_bias", true);
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// Jais 2: LayerNorms, biases everywhere, a squared ReLU MLP without a gate.
extern const Family kJais2{
    .architecture = "Jais2ForCausalLM",
    .model_type = "jais2",
    .config_class = "Jais2Config",
    .layer_class = "Jais2DecoderLayer",
    .read_config = read_jais2,
    .flops = ungated_flops,
};

}  // namespace automodel::models::decoder

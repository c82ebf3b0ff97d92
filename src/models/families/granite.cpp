#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_granite(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false});
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  config.embedding_scale = reader.number("embedding_multiplier", 1.0);
  config.residual_scale = reader.number("residual_multiplier", 1.0);
  const double divisor = reader.number("logits_scaling", 1.0);
  if (divisor == 0) reader.problem("logits_scaling is 0; logits are divided by it");
  config.logit_scale = divisor == 0 ? 1.0 : 1.0 / divisor;
  const double scale = reader.number("attention_multiplier", 1.0);
  for (LayerOptions& layer : config.layers) layer.attention_scale = scale;
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// Granite: Llama with four multipliers.
extern const Family kGranite{
    .architecture = "GraniteForCausalLM",
    .model_type = "granite",
    .config_class = "GraniteConfig",
    .layer_class = "GraniteDecoderLayer",
    .read_config = read_granite,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

#include <cmath>

#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_hyperclovax(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false});
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  config.embedding_scale = reader.number("embedding_multiplier", 1.0);
  config.residual_scale = reader.number("residual_multiplier", 1.0);
  config.logit_scale = reader.number("logits_scaling", 1.0);
  if (reader.flag("use_post_norm", true)) config.norm_placement = NormPlacement::kSandwich;
  const double usual = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  const double scale = reader.number("attention_multiplier", usual);
  for (LayerOptions& layer : config.layers) layer.attention_scale = scale;
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// HyperCLOVA X: Granite, whose logits are multiplied and whose branches may end with a norm.
extern const Family kHyperClovaX{
    .architecture = "HyperCLOVAXForCausalLM",
    .model_type = "hyperclovax",
    .config_class = "HyperCLOVAXConfig",
    .layer_class = "HyperCLOVAXDecoderLayer",
    .read_config = read_hyperclovax,
    .names = {.attention_post_norm = "post_norm1", .mlp_post_norm = "post_norm2"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_arcee(ConfigReader& reader) {
  DecoderConfig config = read_common(
      reader,
      {.requires_kv_heads = false, .max_positions = 4096, .norm_eps = 1e-5, .activation = "relu2"});
  config.is_mlp_gated = false;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// Arcee's AFM: Llama with a squared ReLU MLP without a gate.
extern const Family kArcee{
    .architecture = "ArceeForCausalLM",
    .model_type = "arcee",
    .config_class = "ArceeConfig",
    .layer_class = "ArceeDecoderLayer",
    .classifier = "ArceeForSequenceClassification",
    .read_config = read_arcee,
    .flops = ungated_flops,
};

}  // namespace automodel::models::decoder

#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_seed_oss(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.head_dim = 128, .max_positions = 524288, .padding_idx = 1});
  config.has_qkv_bias = reader.flag("attention_bias", true);
  config.has_attention_output_bias = reader.flag("attention_out_bias", false);
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  config.attention_dropout = reader.probability("attention_dropout", 0.1);
  config.residual_dropout = reader.probability("residual_dropout", 0.1);
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// Seed-OSS: Llama with biases on q, k and v, heads of their own size, dropout.
extern const Family kSeedOss{
    .architecture = "SeedOssForCausalLM",
    .model_type = "seed_oss",
    .config_class = "SeedOssConfig",
    .layer_class = "SeedOssDecoderLayer",
    .classifier = "SeedOssForSequenceClassification",
    .read_config = read_seed_oss,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

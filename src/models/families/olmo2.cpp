#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_olmo2(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.requires_kv_heads = false, .norm_eps = 1e-5, .padding_idx = 1});
  config.norm_placement = NormPlacement::kPost;
  config.qk_norm = QkNorm::kWholeProjection;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// OLMo 2: norms after each branch, q and k normed over all heads together.
extern const Family kOlmo2{
    .architecture = "Olmo2ForCausalLM",
    .model_type = "olmo2",
    .config_class = "Olmo2Config",
    .layer_class = "Olmo2DecoderLayer",
    .classifier = "Olmo2ForSequenceClassification",
    .read_config = read_olmo2,
    .names = kPostNormNames,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

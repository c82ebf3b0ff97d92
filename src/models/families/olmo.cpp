#include "models/decoder/family.h"
#include "models/families/olmo_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_olmo(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false, .padding_idx = 1});
  config.norm = NormKind::kLayer;
  config.has_norm_weight = config.has_norm_bias = false;
  config.norm_eps = 1e-5;  // whatever the configuration says
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.qkv_clip = read_clip_qkv(reader);
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// OLMo: LayerNorms without weights, and a bound of q, k and v.
extern const Family kOlmo{
    .architecture = "OlmoForCausalLM",
    .model_type = "olmo",
    .config_class = "OlmoConfig",
    .layer_class = "OlmoDecoderLayer",
    .classifier = "OlmoForSequenceClassification",
    .read_config = read_olmo,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

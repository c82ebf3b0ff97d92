#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_llama(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false});
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// Llama: the baseline, with optional biases.
extern const Family kLlama{
    .architecture = "LlamaForCausalLM",
    .model_type = "llama",
    .config_class = "LlamaConfig",
    .layer_class = "LlamaDecoderLayer",
    .classifier = "LlamaForSequenceClassification",
    .read_config = read_llama,
    .flops = llama_flops,
};

}  // namespace automodel::models::decoder

#include "models/llama/config.h"

namespace automodel::models::llama {

decoder::DecoderConfig read_config(decoder::ConfigReader& reader) {
  decoder::DecoderConfig config = decoder::read_common(reader, {.requires_kv_heads = false});
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  decoder::add_rope(reader, config, {});
  return config;
}

}  // namespace automodel::models::llama

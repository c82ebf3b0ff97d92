#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_internlm3(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false, .max_positions = 32768});
  config.has_qkv_bias = reader.flag("qkv_bias", false);
  config.has_attention_output_bias = config.has_mlp_bias = reader.flag("bias", false);
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// InternLM 3: Llama with biases by two keys. Of code that comes with the released files.
extern const Family kInternLm3{
    .architecture = "InternLM3ForCausalLM",
    .model_type = "internlm3",
    .config_class = "InternLM3Config",
    .layer_class = "InternLM3DecoderLayer",
    .read_config = read_internlm3,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

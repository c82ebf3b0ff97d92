#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_qwen3(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.head_dim = 128, .max_positions = 32768});
  config.qk_norm = QkNorm::kPerHead;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  add_upper_windows(reader, config);
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// Qwen 3: q and k normed per head.
extern const Family kQwen3{
    .architecture = "Qwen3ForCausalLM",
    .model_type = "qwen3",
    .config_class = "Qwen3Config",
    .layer_class = "Qwen3DecoderLayer",
    .classifier = "Qwen3ForSequenceClassification",
    .read_config = read_qwen3,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

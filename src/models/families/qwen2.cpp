#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_qwen2(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.max_positions = 32768});
  config.has_qkv_bias = true;
  add_upper_windows(reader, config);
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// Qwen 2 and 2.5: biases on q, k and v; a window in the upper layers when asked for.
extern const Family kQwen2{
    .architecture = "Qwen2ForCausalLM",
    .model_type = "qwen2",
    .config_class = "Qwen2Config",
    .layer_class = "Qwen2DecoderLayer",
    .classifier = "Qwen2ForSequenceClassification",
    .read_config = read_qwen2,
    .flops = llama_flops,
};

}  // namespace automodel::models::decoder

#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_starcoder2(ConfigReader& reader) {
  DecoderConfig config = read_common(
      reader, {.max_positions = 4096, .is_head_tied = true, .activation = "gelu_pytorch_tanh"});
  config.norm = NormKind::kLayer;
  config.norm_eps = reader.not_negative("norm_epsilon", 1e-5);
  config.is_mlp_gated = false;
  const bool has_biases = reader.flag("use_bias", true);
  config.has_qkv_bias = config.has_attention_output_bias = config.has_mlp_bias = has_biases;
  config.embedding_dropout = reader.probability("embedding_dropout", 0);
  config.residual_dropout = reader.probability("residual_dropout", 0);
  config.initializer_range = reader.number("initializer_range", 0.018042);
  const int64_t window = reader.size("sliding_window", 0);
  set_window(config, window);
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// StarCoder 2: LayerNorm, biases everywhere, an MLP without a gate, rotation, a window.
extern const Family kStarcoder2{
    .architecture = "Starcoder2ForCausalLM",
    .model_type = "starcoder2",
    .config_class = "Starcoder2Config",
    .layer_class = "Starcoder2DecoderLayer",
    .classifier = "Starcoder2ForSequenceClassification",
    .read_config = read_starcoder2,
    .names = {.up = "c_fc", .down = "c_proj"},
    .flops = gpt_flops,
};

}  // namespace automodel::models::decoder

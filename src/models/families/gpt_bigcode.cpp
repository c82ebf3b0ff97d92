#include "models/decoder/family.h"
#include "models/families/gpt_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_gpt_bigcode(ConfigReader& reader) {
  DecoderConfig config = read_gpt_kind(reader, {.dropout = 0.1, .activation = "gelu_pytorch_tanh"});
  config.has_qkv_bias = config.has_attention_output_bias = config.has_mlp_bias = true;
  config.has_learned_positions = true;
  config.is_residual_init_scaled = true;
  if (reader.flag("multi_query", true)) {
    config.num_kv_heads = 1;
  } else {
    config.is_qkv_by_group = true;
  }
  if (!reader.flag("scale_attn_weights", true)) {
    for (LayerOptions& layer : config.layers) layer.attention_scale = 1.0;
  }
  if (reader.flag("add_cross_attention", false)) {
    reader.problem("add_cross_attention true is not built in this version");
  }
  return config;
}

}  // namespace

/// StarCoder and SantaCoder: GPT-2 whose heads share one head of keys, projections stored
/// [out, in].
extern const Family kGptBigCode{
    .architecture = "GPTBigCodeForCausalLM",
    .model_type = "gpt_bigcode",
    .config_class = "GPTBigCodeConfig",
    .layer_class = "GPTBigCodeBlock",
    .classifier = "GPTBigCodeForSequenceClassification",
    .read_config = read_gpt_bigcode,
    .names = kGpt2Names,
    .flops = ungated_flops,
};

}  // namespace automodel::models::decoder

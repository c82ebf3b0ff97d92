#include <cmath>

#include "models/decoder/family.h"
#include "models/families/gpt_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_gpt2(ConfigReader& reader) {
  DecoderConfig config = read_gpt_kind(reader, {.dropout = 0.1});
  config.has_qkv_bias = config.has_attention_output_bias = config.has_mlp_bias = true;
  config.has_learned_positions = true;
  config.is_conv1d = true;
  // No key of transformers': upstream's own builder draws all weights alike.
  config.is_residual_init_scaled = reader.flag("scale_residual_init", true);
  const bool is_scaled = reader.flag("scale_attn_weights", true);
  const bool is_scaled_by_layer = reader.flag("scale_attn_by_inverse_layer_idx", false);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const double scale = is_scaled ? 1.0 / std::sqrt(static_cast<double>(config.head_dim)) : 1.0;
    config.layers[i].attention_scale =
        is_scaled_by_layer ? scale / static_cast<double>(i + 1) : scale;
  }
  if (reader.flag("add_cross_attention", false)) {
    reader.problem("add_cross_attention true is not built in this version");
  }
  return config;
}

}  // namespace

/// GPT-2: LayerNorm, learned positions, projections stored [in, out], dropout.
extern const Family kGpt2{
    .architecture = "GPT2LMHeadModel",
    .model_type = "gpt2",
    .config_class = "GPT2Config",
    .layer_class = "GPT2Block",
    .classifier = "GPT2ForSequenceClassification",
    .read_config = read_gpt2,
    .names = kGpt2Names,
    .flops = gpt_flops,
};

}  // namespace automodel::models::decoder

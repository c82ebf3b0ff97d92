#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_nemotron(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.max_positions = 4096, .activation = "relu2"});
  config.norm = NormKind::kLayerPlusOne;
  config.norm_eps = reader.not_negative("norm_eps", 1e-5);
  config.is_mlp_gated = false;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  config.initializer_range = reader.number("initializer_range", 0.0134);
  add_rope(reader, config, {.has_partial_default = true, .partial_default = 0.5});
  return config;
}

}  // namespace

/// Nemotron 4 and Minitron: LayerNorms times 1 + weight, a squared ReLU MLP without a gate, half of
/// a head's dims rotated.
extern const Family kNemotron{
    .architecture = "NemotronForCausalLM",
    .model_type = "nemotron",
    .config_class = "NemotronConfig",
    .layer_class = "NemotronDecoderLayer",
    .classifier = "NemotronForSequenceClassification",
    .read_config = read_nemotron,
    .flops = ungated_flops,
};

}  // namespace automodel::models::decoder

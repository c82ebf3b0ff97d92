#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_stablelm(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.max_positions = 4096});
  config.norm = NormKind::kLayer;
  config.norm_eps = reader.not_negative("layer_norm_eps", 1e-5);
  if (reader.flag("use_parallel_residual", false)) {
    config.norm_placement = NormPlacement::kParallel;
  }
  if (reader.flag("qk_layernorm", false)) config.qk_norm = QkNorm::kLayerOfHeads;
  config.has_qkv_bias = reader.flag("use_qkv_bias", false);
  if (reader.probability("hidden_dropout", 0) != 0) {
    reader.problem("hidden_dropout is not in this version; 0 turns it off");
  }
  add_rope(reader, config, {.has_partial_default = true, .partial_default = 0.25});
  return config;
}

}  // namespace

/// StableLM: Llama with LayerNorms and a quarter of a head's dims rotated; StableLM 2 also norms
/// each head of q and k by weights of its own and has attention and MLP side by side.
extern const Family kStableLm{
    .architecture = "StableLmForCausalLM",
    .model_type = "stablelm",
    .config_class = "StableLmConfig",
    .layer_class = "StableLmDecoderLayer",
    .classifier = "StableLmForSequenceClassification",
    .read_config = read_stablelm,
    .names = {.q_norm = "q_layernorm.norms.", .k_norm = "k_layernorm.norms."},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder

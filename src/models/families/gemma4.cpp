#include "models/decoder/family.h"
#include "models/families/gemma2_kind.h"
#include "models/families/gemma4_kind.h"
#include "models/families/text_config.h"

namespace automodel::models::decoder {

namespace {

/// What the two text configurations' defaults differ in.
struct Gemma4Defaults {
  int64_t window = 512;
  int64_t max_positions = 131072;
  int64_t layer_input_dim = 256;  ///< of embeddings of each layer
};

/// Findings for what the text models of Gemma 4 E2B, E4B and 26B-A4B have besides.
void refuse_others(ConfigReader& reader, const Gemma4Defaults& defaults) {
  if (reader.json().contains("hidden_size_per_layer_input")
          ? reader.count("hidden_size_per_layer_input", 0) > 0
          : defaults.layer_input_dim > 0) {
    reader.problem(
        "embeddings of each layer (hidden_size_per_layer_input) are not built in this version; 0 "
        "leaves them out");
  }
  if (reader.count("num_kv_shared_layers", 0) > 0) {
    reader.problem("layers that share keys (num_kv_shared_layers) are not built in this version");
  }
  if (reader.flag("enable_moe_block", false)) {
    reader.problem("experts beside an MLP (enable_moe_block) are not built in this version");
  }
}

DecoderConfig read_gemma4_text(ConfigReader& reader, const Gemma4Defaults& defaults) {
  DecoderConfig config = read_gemma4_kind(reader, defaults.max_positions);
  config.has_value_norm = true;
  config.has_layer_scalars = true;
  config.final_softcap = reader.number("final_logit_softcapping", 0);
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  const bool are_values_keys = reader.flag("attention_k_eq_v", false);
  const std::vector<Gemma4Layer> layers = read_gemma4_layers(reader, config, are_values_keys);
  for (size_t i = 0; i < layers.size(); ++i) {
    config.layers[i].head_dim = layers[i].head_dim;
    config.layers[i].num_kv_heads = layers[i].num_kv_heads;
    config.layers[i].are_values_keys = are_values_keys && !layers[i].is_sliding;
  }
  set_gemma4_layers(reader, layers, reader.size("sliding_window", defaults.window), config);
  refuse_others(reader, defaults);
  return config;
}

DecoderConfig read_gemma4(ConfigReader& reader) {
  return read_gemma4_text(reader, {});
}

DecoderConfig read_unified(ConfigReader& reader) {
  return read_gemma4_text(reader, {.window = 1024, .max_positions = 262144, .layer_input_dim = 0});
}

DecoderConfig read_gemma4_with_towers(ConfigReader& reader) {
  return read_text_config(reader, read_gemma4);
}

DecoderConfig read_unified_with_embedders(ConfigReader& reader) {
  return read_text_config(reader, read_unified);
}

constexpr HfNames kTowerNames{.embedding = "model.language_model.embed_tokens",
                              .layers = "model.language_model.layers",
                              .final_norm = "model.language_model.norm",
                              .attention_post_norm = "post_attention_layernorm",
                              .mlp_pre_norm = "pre_feedforward_layernorm",
                              .mlp_post_norm = "post_feedforward_layernorm"};

}  // namespace

/// Gemma 4's dense text model: full layers with heads of another size, whose keys may be the
/// values, and layers with a window; q, k and v normed per head; a number that multiplies each
/// layer's result.
extern const Family kGemma4{
    .architecture = "Gemma4ForCausalLM",
    .model_type = "gemma4_text",
    .module = "gemma4",
    .config_class = "Gemma4TextConfig",
    .layer_class = "Gemma4TextDecoderLayer",
    .read_config = read_gemma4,
    .names = kGemmaKindNames,
    .flops = layered_flops,
};

/// Gemma 4 as it is released (31B): the text model beside towers, which are left alone.
extern const Family kGemma4Towers{
    .architecture = "Gemma4ForConditionalGeneration",
    .model_type = "gemma4",
    .config_class = "Gemma4Config",
    .layer_class = "Gemma4TextDecoderLayer",
    .read_config = read_gemma4_with_towers,
    .names = kTowerNames,
    .kept_prefixes = {"model.vision_tower.", "model.embed_vision.", "model.audio_tower.",
                      "model.embed_audio."},
    .flops = layered_flops,
};

/// Gemma 4 Unified's text model (12B).
extern const Family kGemma4Unified{
    .architecture = "Gemma4UnifiedForCausalLM",
    .model_type = "gemma4_unified_text",
    .module = "gemma4_unified",
    .config_class = "Gemma4UnifiedTextConfig",
    .layer_class = "Gemma4UnifiedTextDecoderLayer",
    .read_config = read_unified,
    .names = kGemmaKindNames,
    .flops = layered_flops,
};

/// Gemma 4 Unified as it is released: the text model beside embedders of patches and sounds, which
/// are left alone.
extern const Family kGemma4UnifiedEmbedders{
    .architecture = "Gemma4UnifiedForConditionalGeneration",
    .model_type = "gemma4_unified",
    .config_class = "Gemma4UnifiedConfig",
    .layer_class = "Gemma4UnifiedTextDecoderLayer",
    .read_config = read_unified_with_embedders,
    .names = kTowerNames,
    .kept_prefixes = {"model.vision_embedder.", "model.embed_vision.", "model.embed_audio."},
    .flops = layered_flops,
};

}  // namespace automodel::models::decoder

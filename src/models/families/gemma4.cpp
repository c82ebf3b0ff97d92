#include "core/text.h"
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
  int64_t layer_input_dim = 256;  ///< of inputs of each layer
  bool has_all_parts = true;      ///< there may be such inputs, and experts
};

/// Reads the inputs of each layer (E2B, E4B).
void read_layer_inputs(ConfigReader& reader, const Gemma4Defaults& defaults,
                       DecoderConfig& config) {
  // An explicit null means none; only an absent key takes the default.
  const bool is_said = reader.json().contains("hidden_size_per_layer_input");
  const int64_t dim =
      reader.count("hidden_size_per_layer_input", is_said ? 0 : defaults.layer_input_dim);
  const int64_t rows = reader.size("vocab_size_per_layer_input", 262144);
  if (dim > 0) config.layer_inputs = LayerInputOptions{.vocab_size = rows, .dim = dim};
}

/// The last of the first `count` layers that is of the same kind as `number`; -1 without one.
int64_t last_alike(const std::vector<Gemma4Layer>& layers, int64_t count, size_t number) {
  for (int64_t i = count - 1; i >= 0; --i) {
    if (layers[static_cast<size_t>(i)].is_sliding == layers[number].is_sliding) return i;
  }
  return -1;
}

/// Reads which layers, the last ones, see the keys of the last one of their kind before all of them
/// (E2B, E4B). Their MLPs may be twice as wide.
void share_keys(ConfigReader& reader, const std::vector<Gemma4Layer>& layers,
                DecoderConfig& config) {
  const int64_t num_sharing = reader.count("num_kv_shared_layers", 0);
  const bool is_wide = reader.flag("use_double_wide_mlp", false);
  const int64_t first = config.num_layers() - num_sharing;
  if (num_sharing == 0) return;
  if (first <= 0) {
    reader.problem(cat("num_kv_shared_layers ", num_sharing, " leaves none of ",
                       config.num_layers(), " layers whose keys the others could see"));
    return;
  }
  for (auto i = static_cast<size_t>(first); i < layers.size(); ++i) {
    LayerOptions& layer = config.layers[i];
    layer.key_layer = last_alike(layers, first, i);
    if (layer.key_layer < 0) {
      reader.problem(cat("num_kv_shared_layers ", num_sharing, " leaves no ",
                         layers[i].is_sliding ? "sliding" : "full", " layer whose keys layer ", i,
                         " could see"));
      return;
    }
    LayerOptions& giving = config.layers[static_cast<size_t>(layer.key_layer)];
    giving.gives_keys = true;
    if (giving.num_kv_heads != layer.num_kv_heads || giving.head_dim != layer.head_dim) {
      reader.problem(cat("layer ", i, " has heads of other sizes than layer ", layer.key_layer,
                         ", whose keys it sees"));
    }
    if (is_wide) layer.intermediate_size = 2 * config.intermediate_size;
  }
}

/// Reads the experts beside each MLP (26B-A4B).
void read_side_experts(ConfigReader& reader, DecoderConfig& config) {
  if (!reader.flag("enable_moe_block", false)) return;
  config.moe = read_gemma4_experts(reader, config);
  for (LayerOptions& layer : config.layers) layer.has_side_experts = true;
}

DecoderConfig read_gemma4_text(ConfigReader& reader, const Gemma4Defaults& defaults) {
  DecoderConfig config = read_gemma4_kind(reader, defaults.max_positions);
  config.has_value_norm = true;
  config.has_layer_scalars = true;
  config.final_softcap = reader.not_negative("final_logit_softcapping", 0);
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
  share_keys(reader, layers, config);
  if (defaults.has_all_parts) {
    read_layer_inputs(reader, defaults, config);
    read_side_experts(reader, config);
  } else if (reader.count("hidden_size_per_layer_input", 0) > 0 ||
             reader.flag("enable_moe_block", false)) {
    reader.problem(
        "Gemma 4 Unified has neither inputs of each layer (hidden_size_per_layer_input) nor "
        "experts "
        "(enable_moe_block)");
  }
  return config;
}

DecoderConfig read_gemma4(ConfigReader& reader) {
  return read_gemma4_text(reader, {});
}

DecoderConfig read_unified(ConfigReader& reader) {
  return read_gemma4_text(
      reader,
      {.window = 1024, .max_positions = 262144, .layer_input_dim = 0, .has_all_parts = false});
}

DecoderConfig read_gemma4_with_towers(ConfigReader& reader) {
  return read_text_config(reader, read_gemma4);
}

DecoderConfig read_unified_with_embedders(ConfigReader& reader) {
  return read_text_config(reader, read_unified);
}

constexpr HfNames kGemma4Names = [] {
  HfNames names = kGemmaKindNames;
  names.are_experts_stacked = true;
  return names;
}();

constexpr HfNames kTowerNames{.embedding = "model.language_model.embed_tokens",
                              .layers = "model.language_model.layers",
                              .final_norm = "model.language_model.norm",
                              .are_experts_stacked = true,
                              .attention_post_norm = "post_attention_layernorm",
                              .mlp_pre_norm = "pre_feedforward_layernorm",
                              .mlp_post_norm = "post_feedforward_layernorm"};

}  // namespace

/// Gemma 4's text model: full layers with heads of another size, whose keys may be the values, and
/// layers with a window; q, k and v normed per head; a number that multiplies each layer's result;
/// as configured, experts beside each MLP, inputs of each layer, and layers that see another
/// layer's keys.
extern const Family kGemma4{
    .architecture = "Gemma4ForCausalLM",
    .model_type = "gemma4_text",
    .module = "gemma4",
    .config_class = "Gemma4TextConfig",
    .layer_class = "Gemma4TextDecoderLayer",
    .experts_class = "Gemma4TextExperts",
    .read_config = read_gemma4,
    .names = kGemma4Names,
    .flops = layered_flops,
};

/// Gemma 4 as it is released (E2B, E4B, 26B-A4B, 31B): the text model beside towers, which are left
/// alone.
extern const Family kGemma4Towers{
    .architecture = "Gemma4ForConditionalGeneration",
    .model_type = "gemma4",
    .config_class = "Gemma4Config",
    .layer_class = "Gemma4TextDecoderLayer",
    .experts_class = "Gemma4TextExperts",
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
    .names = kGemma4Names,
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

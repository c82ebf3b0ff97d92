#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/families/gemma_kind.h"
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
  const Json* direction = reader.find("use_bidirectional_attention");
  const bool is_causal =
      direction == nullptr || *direction == "vision" || *direction == Json(false);
  if (!is_causal) {
    reader.problem("use_bidirectional_attention must be null or \"vision\": text is read causally");
  }
}

/// Which layers have a window. transformers makes the last layer a full one, whatever layer_types
/// has.
std::vector<bool> read_kinds(ConfigReader& reader, DecoderConfig& config, int64_t window) {
  constexpr int64_t kPeriod = 6;
  std::vector<bool> sliding;
  if (auto listed = read_layer_types(reader, config.num_layers())) {
    sliding = std::move(*listed);
  } else {
    for (int64_t i = 0; i < config.num_layers(); ++i) sliding.push_back((i + 1) % kPeriod != 0);
  }
  sliding.back() = false;
  set_windows(config, window, sliding);
  return sliding;
}

/// Reads what per_layer_config, as transformers writes it, says of one layer.
void read_override(ConfigReader& reader, const Json& listed, size_t layer, LayerOptions& options) {
  const Json* found = listed.find(cat(layer));
  if (found == nullptr || found->is_null()) return;
  if (!found->is_object()) {
    reader.problem(cat("per_layer_config.", layer, " must be an object, not ", found->kind()));
    return;
  }
  ConfigReader own(*found);
  options.head_dim = own.size("head_dim", options.head_dim);
  options.num_kv_heads = own.size("num_key_value_heads", options.num_kv_heads);
  for (const std::string& text : own.problems()) {
    reader.problem(cat("per_layer_config.", layer, ".", text));
  }
}

/// Full layers have heads of their own size and, where keys are the values, number.
void read_gemma4_heads(ConfigReader& reader, DecoderConfig& config,
                       const std::vector<bool>& sliding) {
  const bool are_values_keys = reader.flag("attention_k_eq_v", false);
  const Json* listed = reader.find("per_layer_config");
  if (listed != nullptr && !listed->is_object()) {
    reader.problem(cat("per_layer_config must be an object, not ", listed->kind()));
    return;
  }
  const int64_t full_head_dim = reader.size("global_head_dim", 512);
  const int64_t full_kv_heads = reader.size("num_global_key_value_heads", config.num_kv_heads);
  for (size_t i = 0; i < sliding.size(); ++i) {
    LayerOptions& layer = config.layers[i];
    layer.attention_scale = 1.0;
    layer.head_dim = config.head_dim;
    layer.num_kv_heads = config.num_kv_heads;
    if (!sliding[i]) layer.are_values_keys = are_values_keys;
    if (listed != nullptr) {
      read_override(reader, *listed, i, layer);
    } else if (!sliding[i]) {
      layer.head_dim = full_head_dim;
      if (are_values_keys) layer.num_kv_heads = full_kv_heads;
    }
    if (config.num_heads % layer.num_kv_heads == 0) continue;
    reader.problem(cat("num_key_value_heads ", layer.num_kv_heads, " of layer ", i,
                       " does not divide num_attention_heads ", config.num_heads));
    layer.num_kv_heads = 1;
  }
}

/// The common head size of a kind's layers, which share a rotary embedding.
int64_t head_dim_of_kind(ConfigReader& reader, const DecoderConfig& config,
                         const std::vector<bool>& sliding, bool is_sliding) {
  int64_t found = 0;
  for (size_t i = 0; i < sliding.size(); ++i) {
    if (sliding[i] != is_sliding) continue;
    const int64_t own = config.layers[i].head_dim;
    if (found != 0 && own != found) {
      reader.problem(cat("per_layer_config gives ", is_sliding ? "sliding" : "full",
                         " layers head_dim ", found, " and ", own,
                         "; layers of one kind have one rotary embedding"));
    }
    found = own;
  }
  return found == 0 ? config.head_dim : found;
}

/// Rope 0 for full layers, of which a part rotates, and rope 1 for those with a window.
void add_gemma4_ropes(ConfigReader& reader, DecoderConfig& config,
                      const std::vector<bool>& sliding) {
  const Json standard =
      Json::parse(R"({"rope_type": "proportional", "partial_rotary_factor": 0.25})", "default");
  const Json* nested = reader.find("rope_parameters");
  for (const bool is_sliding : {false, true}) {
    const char* type = is_sliding ? "sliding_attention" : "full_attention";
    const Json* found = nested == nullptr ? nullptr : nested->find(type);
    if (nested == nullptr && !is_sliding) found = &standard;
    DecoderConfig own = config;
    own.head_dim = head_dim_of_kind(reader, config, sliding, is_sliding);
    config.ropes.push_back(read_rope(
        reader, found, own, {.theta = is_sliding ? 1e4 : 1e6, .has_partial_default = true}));
  }
  for (size_t i = 0; i < sliding.size(); ++i) config.layers[i].rope = sliding[i] ? 1 : 0;
}

DecoderConfig read_gemma4_text(ConfigReader& reader, const Gemma4Defaults& defaults) {
  // read_common refuses every value of use_bidirectional_attention except false.
  Json plain = reader.json();
  plain.erase("use_bidirectional_attention");
  ConfigReader common(plain);
  DecoderConfig config = read_common(common, {.head_dim = 256,
                                              .max_positions = defaults.max_positions,
                                              .is_head_tied = true,
                                              .padding_idx = 0,
                                              .activation_key = "hidden_activation",
                                              .activation = "gelu_pytorch_tanh"});
  for (const std::string& problem : common.problems()) reader.problem(problem);
  config.norm_placement = NormPlacement::kSandwich;
  config.qk_norm = QkNorm::kPerHead;
  config.has_value_norm = true;
  config.has_layer_scalars = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.is_embedding_scale_rounded = true;
  config.final_softcap = reader.number("final_logit_softcapping", 0);
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  const std::vector<bool> sliding =
      read_kinds(reader, config, reader.size("sliding_window", defaults.window));
  read_gemma4_heads(reader, config, sliding);
  add_gemma4_ropes(reader, config, sliding);
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

#include "models/diffusion_gemma/config.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::diffusion_gemma {

namespace {

using decoder::ConfigReader;
using decoder::DecoderConfig;

constexpr int64_t kSlidingPeriod = 6;  // every n-th layer attends to everything

/// transformers makes the last layer a full one, whatever layer_types has.
std::vector<bool> read_sliding_layers(ConfigReader& reader, int64_t num_layers) {
  std::vector<bool> sliding;
  if (auto listed = decoder::read_layer_types(reader, num_layers)) {
    sliding = std::move(*listed);
  } else {
    for (int64_t i = 0; i < num_layers; ++i) sliding.push_back((i + 1) % kSlidingPeriod != 0);
  }
  if (!sliding.empty()) sliding.back() = false;
  return sliding;
}

/// Reads the head size and key-value heads of one layer from a config that lists them by layer.
void read_override(ConfigReader& reader, const Json& listed, size_t layer, LayerShape& shape) {
  const Json* found = listed.find(cat(layer));
  if (found == nullptr || found->is_null()) return;
  if (!found->is_object()) {
    reader.problem(cat("per_layer_config.", layer, " must be an object, not ", found->kind()));
    return;
  }
  ConfigReader own(*found);
  shape.head_dim = own.size("head_dim", shape.head_dim);
  shape.num_kv_heads = own.size("num_key_value_heads", shape.num_kv_heads);
  for (const std::string& text : own.problems()) {
    reader.problem(cat("per_layer_config.", layer, ".", text));
  }
}

std::vector<LayerShape> read_layers(ConfigReader& reader, const DecoderConfig& text,
                                    const std::vector<bool>& sliding) {
  const Json* listed = reader.find("per_layer_config");
  if (listed != nullptr && !listed->is_object()) {
    reader.problem(cat("per_layer_config must be an object, not ", listed->kind()));
    listed = nullptr;
  }
  const int64_t full_head_dim = listed == nullptr ? reader.size("global_head_dim", 512) : 0;
  const int64_t full_kv_heads =
      listed == nullptr ? reader.size("num_global_key_value_heads", text.num_kv_heads) : 0;
  std::vector<LayerShape> layers;
  for (size_t i = 0; i < sliding.size(); ++i) {
    LayerShape shape{text.head_dim, text.num_kv_heads, sliding[i]};
    if (listed != nullptr) {
      read_override(reader, *listed, i, shape);
    } else if (!sliding[i]) {
      shape.head_dim = full_head_dim;
      shape.num_kv_heads = full_kv_heads;
    }
    if (text.num_heads % shape.num_kv_heads != 0) {
      reader.problem(cat("num_key_value_heads ", shape.num_kv_heads, " of layer ", i,
                         " does not divide num_attention_heads ", text.num_heads));
      shape.num_kv_heads = 1;
    }
    layers.push_back(shape);
  }
  return layers;
}

/// The common head size of a kind's layers, which share a rotary embedding.
int64_t head_dim_of(ConfigReader& reader, const std::vector<LayerShape>& layers, bool is_sliding,
                    int64_t fallback) {
  int64_t found = 0;
  for (const LayerShape& layer : layers) {
    if (layer.is_sliding != is_sliding) continue;
    if (found != 0 && layer.head_dim != found) {
      reader.problem(cat("per_layer_config gives ", is_sliding ? "sliding" : "full",
                         " layers head_dim ", found, " and ", layer.head_dim,
                         "; layers of one kind have one rotary embedding"));
    }
    found = layer.head_dim;
  }
  return found == 0 ? fallback : found;
}

/// Adds rope 0 for full layers and rope 1 for sliding ones.
void add_ropes(ConfigReader& reader, const std::vector<LayerShape>& layers, DecoderConfig& text) {
  const Json standard =
      Json::parse(R"({"rope_type": "proportional", "partial_rotary_factor": 0.25})", "default");
  const Json* nested = reader.find("rope_parameters");
  for (const bool is_sliding : {false, true}) {
    const char* type = is_sliding ? "sliding_attention" : "full_attention";
    const Json* found = nested == nullptr ? nullptr : nested->find(type);
    if (nested == nullptr && !is_sliding) found = &standard;
    DecoderConfig own = text;
    own.head_dim = head_dim_of(reader, layers, is_sliding, text.head_dim);
    text.ropes.push_back(decoder::read_rope(
        reader, found, own, {.theta = is_sliding ? 1e4 : 1e6, .has_partial_default = true}));
  }
  for (size_t i = 0; i < layers.size(); ++i) text.layers[i].rope = layers[i].is_sliding ? 1 : 0;
}

void refuse_what_is_not_built(ConfigReader& reader, const DecoderConfig& text) {
  if (text.attention_dropout > 0) {
    reader.problem("attention_dropout above 0 is not built for DiffusionGemma");
  }
  if (reader.flag("attention_bias", false)) {
    reader.problem("attention_bias true is not built for DiffusionGemma");
  }
  const Json* direction = reader.find("use_bidirectional_attention");
  const bool is_causal = direction == nullptr ||
                         (direction->is_string() && direction->as_string() == "vision") ||
                         (direction->is_bool() && !direction->as_bool());
  if (!is_causal) {
    reader.problem("use_bidirectional_attention must be null or \"vision\": text is read causally");
  }
}

DiffusionGemmaConfig read_text(ConfigReader& reader) {
  DiffusionGemmaConfig config;
  DecoderConfig& text = config.text;
  // read_common refuses every value of use_bidirectional_attention except false.
  Json plain = reader.json();
  plain.erase("use_bidirectional_attention");
  ConfigReader common(plain);
  text = decoder::read_common(common, {.head_dim = 256,
                                       .max_positions = 131072,
                                       .is_head_tied = true,
                                       .padding_idx = 0,
                                       .activation_key = "hidden_activation",
                                       .activation = "gelu_pytorch_tanh"});
  for (const std::string& problem : common.problems()) reader.problem(problem);
  refuse_what_is_not_built(reader, text);
  text.norm_placement = decoder::NormPlacement::kSandwich;
  text.qk_norm = decoder::QkNorm::kPerHead;
  text.embedding_scale = std::sqrt(static_cast<double>(text.hidden_size));
  text.is_embedding_scale_rounded = true;
  text.final_softcap = reader.number("final_logit_softcapping", 30.0);
  if (!text.is_head_tied)
    reader.problem("tie_word_embeddings false is not built: the head is the embedding");
  const std::vector<bool> sliding = read_sliding_layers(reader, text.num_layers());
  config.layers = read_layers(reader, text, sliding);
  config.window = reader.size("sliding_window", 512);
  decoder::set_windows(text, config.window, sliding);
  for (decoder::LayerOptions& layer : text.layers) layer.attention_scale = 1.0;
  add_ropes(reader, config.layers, text);
  text.moe = decoder::read_experts(reader, text, {.num_chosen = "top_k_experts"});
  text.moe->softmax_before_topk = true;
  text.moe->norm_topk_prob = true;
  decoder::use_experts_from(text, 0);
  return config;
}

}  // namespace

DiffusionGemmaConfig read_diffusion_gemma(ConfigReader& reader) {
  const Json none = Json::object();
  const Json* nested = reader.find("text_config");
  if (nested == nullptr || !nested->is_object()) {
    reader.problem("text_config is missing: the sizes of DiffusionGemma's text model");
    nested = nullptr;
  }
  ConfigReader text(nested != nullptr ? *nested : none);
  DiffusionGemmaConfig config = read_text(text);
  if (nested != nullptr) {
    for (const std::string& problem : text.problems()) reader.problem(cat("text_config.", problem));
  }
  if (!reader.flag("tie_word_embeddings", true)) {
    reader.problem(
        "tie_word_embeddings false is not built: text is read and denoised by the same layers");
  }
  config.canvas_length = reader.size("canvas_length", 256);
  config.has_self_conditioning = reader.flag("self_conditioning", true);
  config.is_router_frozen = reader.flag("freeze_router", true);
  return config;
}

DecoderConfig read_config(ConfigReader& reader) {
  return read_diffusion_gemma(reader).text;
}

}  // namespace automodel::models::diffusion_gemma

#include "models/families/gemma4_kind.h"

#include <cmath>
#include <utility>

#include "core/text.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// A finding for attention to what comes after a token, which images alone may have.
void refuse_both_directions(ConfigReader& reader) {
  const Json* direction = reader.find("use_bidirectional_attention");
  const bool is_causal =
      direction == nullptr || *direction == "vision" || *direction == Json(false);
  if (!is_causal) {
    reader.problem("use_bidirectional_attention must be null or \"vision\": text is read causally");
  }
}

std::vector<bool> read_sliding_layers(ConfigReader& reader, int64_t num_layers) {
  constexpr int64_t kPeriod = 6;
  std::vector<bool> sliding;
  if (auto listed = read_layer_types(reader, num_layers)) {
    sliding = std::move(*listed);
  } else {
    for (int64_t i = 0; i < num_layers; ++i) sliding.push_back((i + 1) % kPeriod != 0);
  }
  if (!sliding.empty()) sliding.back() = false;
  return sliding;
}

/// Reads what per_layer_config says of one layer.
void read_override(ConfigReader& reader, const Json& listed, size_t number, Gemma4Layer& layer) {
  const Json* found = listed.find(cat(number));
  if (found == nullptr || found->is_null()) return;
  if (!found->is_object()) {
    reader.problem(cat("per_layer_config.", number, " must be an object, not ", found->kind()));
    return;
  }
  ConfigReader own(*found);
  layer.head_dim = own.size("head_dim", layer.head_dim);
  layer.num_kv_heads = own.size("num_key_value_heads", layer.num_kv_heads);
  for (const std::string& text : own.problems()) {
    reader.problem(cat("per_layer_config.", number, ".", text));
  }
}

/// The common head size of a kind's layers, which share a rotary embedding.
int64_t head_dim_of_kind(ConfigReader& reader, const std::vector<Gemma4Layer>& layers,
                         bool is_sliding, int64_t fallback) {
  int64_t found = 0;
  for (const Gemma4Layer& layer : layers) {
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

}  // namespace

DecoderConfig read_gemma4_kind(ConfigReader& reader, int64_t max_positions) {
  // read_common refuses every value of use_bidirectional_attention except false.
  Json plain = reader.json();
  plain.erase("use_bidirectional_attention");
  ConfigReader common(plain);
  DecoderConfig config = read_common(common, {.head_dim = 256,
                                              .max_positions = max_positions,
                                              .is_head_tied = true,
                                              .padding_idx = 0,
                                              .activation_key = "hidden_activation",
                                              .activation = "gelu_pytorch_tanh"});
  reader.add_problems_of(common);
  refuse_both_directions(reader);
  config.norm_placement = NormPlacement::kSandwich;
  config.qk_norm = QkNorm::kPerHead;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.is_embedding_scale_rounded = true;
  return config;
}

std::vector<Gemma4Layer> read_gemma4_layers(ConfigReader& reader, const DecoderConfig& config,
                                            bool are_values_keys) {
  const Json* listed = reader.find("per_layer_config");
  if (listed != nullptr && !listed->is_object()) {
    reader.problem(cat("per_layer_config must be an object, not ", listed->kind()));
    listed = nullptr;
  }
  const int64_t full_head_dim = reader.size("global_head_dim", 512);
  const int64_t full_kv_heads = reader.size("num_global_key_value_heads", config.num_kv_heads);
  std::vector<Gemma4Layer> layers;
  for (const bool is_sliding : read_sliding_layers(reader, config.num_layers())) {
    const size_t number = layers.size();
    Gemma4Layer& layer =
        layers.emplace_back(Gemma4Layer{config.head_dim, config.num_kv_heads, is_sliding});
    if (listed != nullptr) {
      read_override(reader, *listed, number, layer);
    } else if (!is_sliding) {
      layer.head_dim = full_head_dim;
      if (are_values_keys) layer.num_kv_heads = full_kv_heads;
    }
    if (config.num_heads % layer.num_kv_heads == 0) continue;
    reader.problem(cat("num_key_value_heads ", layer.num_kv_heads, " of layer ", number,
                       " does not divide num_attention_heads ", config.num_heads));
    layer.num_kv_heads = 1;
  }
  return layers;
}

moe::MoEConfig read_gemma4_experts(ConfigReader& reader, const DecoderConfig& config) {
  moe::MoEConfig moe = read_experts(reader, config, {.num_chosen = "top_k_experts"});
  moe.softmax_before_topk = true;
  moe.norm_topk_prob = true;
  return moe;
}

void set_gemma4_layers(ConfigReader& reader, const std::vector<Gemma4Layer>& layers, int64_t window,
                       DecoderConfig& config) {
  std::vector<bool> sliding;
  for (const Gemma4Layer& layer : layers) sliding.push_back(layer.is_sliding);
  set_windows(config, window, sliding);
  const Json standard =
      Json::parse(R"({"rope_type": "proportional", "partial_rotary_factor": 0.25})", "default");
  const Json* nested = reader.find("rope_parameters");
  for (const bool is_sliding : {false, true}) {
    const char* type = is_sliding ? "sliding_attention" : "full_attention";
    const Json* found = nested == nullptr ? nullptr : nested->find(type);
    if (nested == nullptr && !is_sliding) found = &standard;
    DecoderConfig own = config;
    own.head_dim = head_dim_of_kind(reader, layers, is_sliding, config.head_dim);
    config.ropes.push_back(read_rope(
        reader, found, own, {.theta = is_sliding ? 1e4 : 1e6, .theta_key = "", .partial_key = ""}));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    config.layers[i].attention_scale = 1.0;
    config.layers[i].rope = layers[i].is_sliding ? 1 : 0;
  }
}

}  // namespace automodel::models::decoder

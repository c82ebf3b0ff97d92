#include <vector>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"
#include "models/families/text_config.h"

namespace automodel::models::decoder {

namespace {

/// Layers that rotate and see their own chunk, and layers that do neither, whose queries grow with
/// their position.
void add_llama4_layers(ConfigReader& reader, DecoderConfig& config) {
  add_rope(reader, config, {.theta = 500000.0});
  config.is_rope_interleaved = true;
  const std::vector<bool> rotated = read_rotated_layers(reader, config.num_layers(), true);
  int unrotated = -1;
  const Json* tuning = reader.find("attn_temperature_tuning");  // 4 in some releases, for true
  const bool is_number = tuning != nullptr && tuning->is_int();
  if (is_number ? tuning->as_int() != 0 : reader.flag("attn_temperature_tuning", true)) {
    unrotated = 1;
    config.ropes.push_back({.query_scaling_beta = reader.number("attn_scale", 0.1),
                            .query_scaling_period = reader.size("floor_scale", 8192),
                            .query_scaling_first = 1});
  }
  const auto listed = read_layer_types(reader, config.num_layers(), "chunked_attention");
  const std::vector<bool> chunked = listed.value_or(rotated);
  const int64_t chunk = reader.size("attention_chunk_size", 8192);
  const bool is_off =
      reader.json().contains("attention_chunk_size") && !reader.has("attention_chunk_size");
  if (is_off && std::ranges::find(chunked, true) != chunked.end()) {
    reader.problem("attention_chunk_size is null, but some layers are of chunked_attention");
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].rope = rotated[i] ? 0 : unrotated;
    config.layers[i].chunk = chunked[i] ? chunk : 0;
  }
}

void add_llama4_experts(ConfigReader& reader, DecoderConfig& config) {
  moe::MoEConfig moe = read_experts(reader, config,
                                    {.num_experts = "num_local_experts",
                                     .default_num_experts = 16,
                                     .inner_dim = "intermediate_size",
                                     .default_inner_dim = 8192,
                                     .default_num_chosen = 1});
  moe.score_func = moe::ScoreFunction::kSigmoid;
  moe.is_choice_by_logits = true;
  moe.are_inputs_weighted = true;
  moe.are_experts_transposed = true;
  moe.n_shared_experts = 1;
  config.moe = moe;
  config.intermediate_size = reader.size("intermediate_size_mlp", 16384);
  refuse_router_jitter(reader);
  const int64_t step = reader.size("interleave_moe_layer_step", 1);
  const std::vector<bool> listed = read_layer_indices(reader, "moe_layers", config.num_layers());
  for (int64_t i = 0; i < config.num_layers(); ++i) {
    const auto place = static_cast<size_t>(i);
    config.layers[place].is_moe = reader.has("moe_layers") ? listed[place] : (i + 1) % step == 0;
  }
}

DecoderConfig read_llama4_text(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false,
                                              .head_dim = 128,
                                              .vocab_size = 202048,
                                              .hidden_size = 5120,
                                              .num_heads = 40,
                                              .intermediate_size = 8192,
                                              .max_positions = 131072,
                                              .norm_eps = 1e-5});
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  if (reader.flag("use_qk_norm", true)) config.qk_norm = QkNorm::kPlainPerHead;
  config.is_qk_norm_of_rotated = true;
  add_llama4_layers(reader, config);
  if (config.qk_norm != QkNorm::kNone) {  // norms behind the rotation take the factor away
    for (nn::RopeOptions& rope : config.ropes) rope.attention_factor = 1.0;
  }
  add_llama4_experts(reader, config);
  return config;
}

DecoderConfig read_llama4(ConfigReader& reader) {
  return read_text_config(reader, read_llama4_text);
}

constexpr HfNames kLlama4Names{.mlp = "feed_forward",
                               .router = "router",
                               .are_experts_stacked = true,
                               .shared_experts = "shared_expert"};

constexpr HfNames in_language_model(HfNames names) {
  names.embedding = "language_model.model.embed_tokens";
  names.layers = "language_model.model.layers";
  names.final_norm = "language_model.model.norm";
  names.head = "language_model.lm_head";
  return names;
}

}  // namespace

/// Llama 4: layers that rotate and see the tokens of their chunk, between full ones without
/// positions whose queries are scaled; one of the experts beside a shared one, of inputs weighted
/// by a sigmoid.
extern const Family kLlama4Text{
    .architecture = "Llama4ForCausalLM",
    .model_type = "llama4_text",
    .module = "llama4",
    .config_class = "Llama4TextConfig",
    .layer_class = "Llama4TextDecoderLayer",
    .experts_class = "Llama4TextExperts",
    .exchanges_expert_factors = true,
    .read_config = read_llama4_text,
    .names = kLlama4Names,
    .flops = layered_flops,
};

/// Llama 4 as released, Scout and Maverick: the text model beside a vision tower, which is not
/// built.
extern const Family kLlama4{
    .architecture = "Llama4ForConditionalGeneration",
    .model_type = "llama4",
    .config_class = "Llama4Config",
    .layer_class = "Llama4TextDecoderLayer",
    .experts_class = "Llama4TextExperts",
    .exchanges_expert_factors = true,
    .read_config = read_llama4,
    .names = in_language_model(kLlama4Names),
    .kept_prefixes = {"vision_model.", "multi_modal_projector."},
    .flops = layered_flops,
};

}  // namespace automodel::models::decoder

#include <string>
#include <vector>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/latent_reader.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// Gives the layers that a list of linear_attn_config numbers, from 1 on, a mixer.
void set_listed(ConfigReader& reader, ConfigReader& linear, const char* key, Mixer mixer,
                std::vector<int>& num_named, DecoderConfig& config) {
  const Json* list = linear.find(key);
  if (list == nullptr || !list->is_array()) {
    reader.problem(cat("linear_attn_config.", key, " must be a list of layer numbers"));
    return;
  }
  for (const Json& entry : list->as_array()) {
    const int64_t layer = entry.is_int() ? entry.as_int() : 0;
    if (layer < 1 || layer > config.num_layers()) {
      reader.problem(cat("linear_attn_config.", key, " holds ", entry.dump(),
                         "; layers are numbered from 1 to num_hidden_layers ",
                         config.num_layers()));
      return;
    }
    config.layers[static_cast<size_t>(layer - 1)].mixer = mixer;
    ++num_named[static_cast<size_t>(layer - 1)];
  }
}

/// Which layers are delta attention: by layer_types, the lists in linear_attn_config, or all but
/// every fourth, the first included.
void read_delta_layers(ConfigReader& reader, ConfigReader& linear, DecoderConfig& config) {
  const auto listed = read_layer_types(reader, config.num_layers(), "linear_attention");
  if (!listed && (linear.has("kda_layers") || linear.has("full_attn_layers"))) {
    std::vector<int> num_named(config.layers.size(), 0);
    set_listed(reader, linear, "kda_layers", Mixer::kGatedDelta, num_named, config);
    set_listed(reader, linear, "full_attn_layers", Mixer::kAttention, num_named, config);
    for (size_t i = 0; i < num_named.size(); ++i) {
      if (num_named[i] == 1) continue;
      reader.problem(cat("linear_attn_config: layer ", i + 1, " is in ",
                         num_named[i] == 0   ? "neither"
                         : num_named[i] == 2 ? "both"
                                             : "a list twice",
                         " of kda_layers and full_attn_layers"));
      return;
    }
    return;
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool is_delta = listed ? (*listed)[i] : i == 0 || i % 4 != 0;
    if (is_delta) config.layers[i].mixer = Mixer::kGatedDelta;
  }
}

/// Sizes of delta attention and its layers.
void add_delta_attention(ConfigReader& reader, DecoderConfig& config) {
  const Json none = Json::object();
  const Json* own = reader.find("linear_attn_config");
  if (own != nullptr && !own->is_object()) {
    reader.problem(cat("linear_attn_config must be an object, not ", own->kind()));
    own = nullptr;
  }
  ConfigReader linear(own != nullptr ? *own : none);
  const auto size = [&](const char* nested, const char* plain, int64_t fallback) {
    const int64_t stated = reader.size(plain, fallback);
    return linear.size(nested, stated);
  };
  GatedDeltaOptions sizes;
  sizes.has_row_decays = true;
  sizes.num_heads = size("num_heads", "linear_num_heads", 32);
  sizes.num_key_heads = sizes.num_heads;
  sizes.key_dim = size("head_dim", "linear_head_dim", 128);
  sizes.value_dim = sizes.key_dim;
  sizes.num_taps = size("short_conv_kernel_size", "linear_conv_kernel_dim", 4);
  for (const char* key : {"use_full_rank_gate", "gate_lower_bound"}) {
    if (linear.has(key) && linear.find(key)->dump() != "false") {
      linear.problem(cat(key, " is Kimi K3's, which is not built in this version"));
    }
  }
  config.gated_delta = sizes;
  read_delta_layers(reader, linear, config);
  for (const std::string& text : linear.problems()) {
    reader.problem(cat("linear_attn_config.", text));
  }
}

/// Keys of Kimi K3, whose config.json has the same model_type, and values that no release has.
void refuse_other_kinds(ConfigReader& reader, DecoderConfig& config) {
  for (const char* key : {"attn_res_block_size", "routed_expert_hidden_size"}) {
    if (!reader.has(key)) continue;
    reader.problem(cat(key, " is Kimi K3's, which is not built in this version"));
  }
  if (reader.flag("mla_use_output_gate", false)) {
    reader.problem("mla_use_output_gate true is Kimi K3's, which is not built in this version");
  }
  if (!reader.flag("mla_use_nope", true)) {
    reader.problem("mla_use_nope is false; this family's latent attention does not rotate");
  }
  if (reader.text("moe_router_activation_func", "sigmoid") != "sigmoid") {
    reader.problem("moe_router_activation_func other than sigmoid is not in this version");
  }
  if (reader.size("moe_layer_freq", 1) != 1) {
    reader.problem("moe_layer_freq other than 1 is not in this version");
  }
  if (config.moe->n_expert_groups > 1 && !reader.flag("use_grouped_topk", true)) {
    reader.problem("use_grouped_topk is false, but num_expert_group is above 1");
  }
  if (config.is_head_tied) {
    reader.problem("tie_word_embeddings is true; this family has a head of its own");
    config.is_head_tied = false;
  }
}

DecoderConfig read_kimi_linear(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false,
                                              .head_dim = 64,
                                              .intermediate_size = 9216,
                                              .max_positions = 1048576,
                                              .norm_eps = 1e-5,
                                              .padding_idx = 163839});
  config.max_positions =
      reader.size(either(reader, "max_position_embeddings", "model_max_length"), 1048576);
  add_latent_attention(reader, config, {.q_rank = 0, .has_rope = false});
  add_delta_attention(reader, config);
  const auto key = [&](std::string_view own, std::string_view common) {
    return either(reader, own, common);
  };
  add_corrected_experts(reader, config,
                        {.keys = {.num_experts_alias = "num_local_experts",
                                  .default_num_experts = 256,
                                  .default_inner_dim = 1024,
                                  .num_chosen = key("num_experts_per_token", "num_experts_per_tok"),
                                  .default_num_chosen = 8},
                         .own_keys = {.num_shared = key("num_shared_experts", "n_shared_experts"),
                                      .num_groups = key("num_expert_group", "n_group"),
                                      .norm_topk_prob = key("moe_renormalize", "norm_topk_prob")},
                         .route_scale = 2.446});
  read_mlp_layer_types(reader, config);
  read_next_token_layers(reader, config);
  refuse_other_kinds(reader, config);
  return config;
}

/// Each layer by its kind: latent attention as DeepSeek's, delta attention as Qwen 3.5's. Upstream
/// has no formula for this family.
double kimi_linear_flops(const DecoderConfig& config, double B, double S) {
  double flops = mlps_and_head_flops(config, B, S);
  for (const LayerOptions& layer : config.layers) {
    flops += layer.mixer == Mixer::kGatedDelta ? gated_delta_flops(config, B, S)
                                               : latent_layer_flops(config, B, S, S / 2);
  }
  return flops;
}

}  // namespace

/// Kimi Linear: delta attention whose decay is a channel's own, latent attention without rotation
/// in every fourth layer, DeepSeek's experts.
extern const Family kKimiLinear{
    .architecture = "KimiLinearForCausalLM",
    .model_type = "kimi_linear",
    .config_class = "KimiLinearConfig",
    .layer_class = "KimiLinearDecoderLayer",
    .experts_class = "KimiLinearExperts",
    .upstream = {.architecture = "KimiLinear48BForCausalLM",
                 .config_class =
                     "nemo_automodel.components.models.kimi_linear.config.KimiLinear48BConfig"},
    .read_config = read_kimi_linear,
    .names = {.recurrence = "self_attn",
              .moe = "block_sparse_moe",
              .expert_gate = "w1",
              .expert_up = "w3",
              .expert_down = "w2"},
    .module_names = {{{".block_sparse_moe.shared_experts.", ".mlp.shared_experts."},
                      {".self_attn.f_", ".self_attn.forget_gate.f_"}}},
    .flops = kimi_linear_flops,
};

}  // namespace automodel::models::decoder

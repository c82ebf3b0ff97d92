#include <algorithm>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// Rope 0 for full layers, rope 1 for those with a window. rope_parameters is by layer type; older
/// files have those of full layers there and the others in swa_rope_parameters.
void add_laguna_ropes(ConfigReader& reader, DecoderConfig& config,
                      const std::vector<bool>& sliding) {
  const Json* found = reader.find("rope_parameters");
  const auto nested = [&](const char* type) -> const Json* {
    return found != nullptr && found->is_object() ? found->find(type) : nullptr;
  };
  const Json* full = nested("full_attention");
  const Json* windowed = nested("sliding_attention");
  if (full == nullptr && windowed == nullptr) {
    full = found;
    windowed = reader.find("swa_rope_parameters");
    if (windowed == nullptr) windowed = found;
  }
  config.ropes = {
      read_rope(reader, full, config,
                {.theta = 5e5, .has_partial_default = true, .partial_default = full ? 1.0 : 0.5}),
      read_rope(reader, windowed, config, {.has_partial_default = true})};
  set_ropes_by_window(config, sliding);
}

/// Each layer's number of query heads.
void read_heads_of_layers(ConfigReader& reader, DecoderConfig& config) {
  constexpr const char* kKey = "num_attention_heads_per_layer";
  const Json* found = reader.find(kKey);
  if (found == nullptr) return;
  constexpr int64_t kMost = 1 << 20;  // more are a slip
  const auto is_size = [](const Json& entry) {
    return entry.is_int() && entry.as_int() > 0 && entry.as_int() <= kMost;
  };
  if (!found->is_array() || found->size() != config.layers.size() ||
      !std::ranges::all_of(found->as_array(), is_size)) {
    reader.problem(cat(kKey, " must be a list with a number of heads for each layer"));
    return;
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].num_heads = found->as_array()[i].as_int();
    if (config.layers[i].num_heads % config.num_kv_heads == 0) continue;
    reader.problem(cat("num_key_value_heads ", config.num_kv_heads, " does not divide the ",
                       config.layers[i].num_heads, " heads of layer ", i, " (", kKey, ")"));
    return;
  }
}

/// "per-head", "per-element" or "none", as an entry of gating_types or `gating` says it. A plain
/// true is per head, as the released code and transformers have it.
std::string gating_kind(const Json& entry) {
  if (entry.is_null()) return "none";
  if (entry.is_bool()) return entry.as_bool() ? "per-head" : "none";
  if (!entry.is_string()) return entry.dump();
  std::string name = entry.as_string();
  std::ranges::replace(name, '_', '-');
  if (name == "head") return "per-head";
  if (name == "element") return "per-element";
  return name;
}

void read_gates(ConfigReader& reader, DecoderConfig& config) {
  const Json* all = reader.json().find("gating");
  std::string kind = all == nullptr ? "per-head" : gating_kind(*all);
  if (const Json* types = reader.find("gating_types")) {
    const bool fits = types->is_array() && types->size() == config.layers.size();
    if (fits) kind = gating_kind(types->as_array().front());
    const auto is_other = [&](const Json& entry) { return gating_kind(entry) != kind; };
    if (!fits || std::ranges::any_of(types->as_array(), is_other)) {
      reader.problem("gating_types must have the same entry for each layer in this version");
    }
  }
  if (kind != "per-head" && kind != "per-element") {
    reader.problem(cat("gating '", kind, "' is not built; built: per-head, per-element"));
  }
  config.has_head_gates = true;
  config.are_head_gates_wide = kind == "per-element";
  config.is_head_gate_softplus = true;
}

/// Which layers have experts: as mlp_layer_types lists, or all but those of mlp_only_layers, which
/// is layer 0 where both are absent.
void read_laguna_experts(ConfigReader& reader, DecoderConfig& config) {
  use_experts_from(config, 1);
  if (reader.has("mlp_only_layers")) use_experts_by_step(reader, config);
  read_mlp_layer_types(reader, config);
}

void add_laguna_experts(ConfigReader& reader, DecoderConfig& config) {
  moe::MoEConfig moe =
      read_experts(reader, config,
                   {.default_num_experts = 256, .default_inner_dim = 512, .default_num_chosen = 8});
  moe.shared_expert_inter_dim = reader.count("shared_expert_intermediate_size", 512);
  moe.n_shared_experts = moe.shared_expert_inter_dim > 0 ? 1 : 0;
  moe.score_func = moe::ScoreFunction::kSigmoid;
  moe.has_correction_bias = true;
  moe.is_router_float32 = true;
  moe.norm_topk_prob = reader.flag("norm_topk_prob", true);
  moe.route_scale = reader.number("moe_routed_scaling_factor", 1.0);
  moe.aux_loss_coeff = reader.number("router_aux_loss_coef", 0.001);
  moe.gate_bias_update_factor = read_bias_update_factor(reader, 0);
  config.moe = moe;
}

/// Findings for what transformers or upstream does not compute either.
void refuse_others(ConfigReader& reader) {
  for (const char* key : {"attention_bias", "qkv_bias", "swa_attention_sink_enabled",
                          "moe_apply_router_weight_on_input"}) {
    if (reader.flag(key, false)) reader.problem(cat(key, " true is not built in this version"));
  }
  if (reader.number("moe_router_logit_softcapping", 0) != 0) {
    reader.problem("moe_router_logit_softcapping is not built in this version; 0 turns it off");
  }
}

DecoderConfig read_laguna(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.requires_kv_heads = false, .head_dim = 128, .max_positions = 131072});
  config.qk_norm = QkNorm::kPerHead;
  const std::vector<bool> sliding = add_windows(reader, config, reader.size("sliding_window", 512),
                                                [](int64_t) { return false; });
  read_heads_of_layers(reader, config);
  add_laguna_ropes(reader, config, sliding);
  read_gates(reader, config);
  add_laguna_experts(reader, config);
  read_laguna_experts(reader, config);
  refuse_others(reader);
  return config;
}

}  // namespace

/// Laguna: full layers and layers with a window, each kind with its rotation and each layer with
/// its number of heads; gates by softplus, a number a head or one for each of its dims; sigmoid
/// experts with a correction beside a shared one.
extern const Family kLaguna{
    .architecture = "LagunaForCausalLM",
    .model_type = "laguna",
    .config_class = "LagunaConfig",
    .layer_class = "LagunaDecoderLayer",
    .experts_class = "LagunaExperts",
    .upstream = {.config_class = "nemo_automodel.components.models.laguna.config.LagunaConfig"},
    .read_config = read_laguna,
    .names = {.correction = "experts.e_score_correction_bias", .shared_experts = "shared_expert"},
    .module_names = {{{".mlp.shared_expert.", ".mlp.shared_experts."}}},
    .stand_ins = {{{"mlp.experts.e_score_correction_bias", "mlp.gate.e_score_correction_bias"},
                   {"shared_expert.gate_proj.weight", "shared_experts.gate_proj.weight"},
                   {"shared_expert.up_proj.weight", "shared_experts.up_proj.weight"},
                   {"shared_expert.down_proj.weight", "shared_experts.down_proj.weight"}}},
    .flops = layered_flops,
};

}  // namespace automodel::models::decoder

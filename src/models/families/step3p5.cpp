#include <algorithm>
#include <cmath>
#include <set>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// A list with an entry for each layer, and perhaps more for layers that predict further tokens;
/// null where it is absent or empty.
const Json::Array* listed(ConfigReader& reader, std::string_view key, int64_t num_layers) {
  const Json* found = reader.find(key);
  if (found == nullptr) return nullptr;
  if (!found->is_array()) {
    reader.problem(cat(key, " must be a list, not ", found->kind()));
    return nullptr;
  }
  const auto size = static_cast<int64_t>(found->size());
  if (size == 0) return nullptr;
  if (size >= num_layers) return &found->as_array();
  reader.problem(cat(key, " has ", size, " entries for num_hidden_layers ", num_layers));
  return nullptr;
}

/// Numbers of layers: a list, one number, or a text of them with commas.
std::set<int64_t> layer_numbers(ConfigReader& reader, std::string_view key, const Json& found) {
  std::set<int64_t> numbers;
  const auto refuse = [&] {
    reader.problem(cat(key, " must be layer numbers, e.g. [3, 4] or \"3,4\", not ", found.dump()));
  };
  Json list = found;
  if (found.is_int()) list = Json(Json::Array{found});
  if (found.is_string()) {
    Json::Array parts;
    for (const std::string& part : split(found.as_string(), ',')) {
      if (trim(part).empty()) continue;
      const auto number = parse_int(trim(part));
      if (!number) {
        refuse();
        return {};
      }
      parts.emplace_back(*number);
    }
    list = Json(std::move(parts));
  }
  const auto is_number = [](const Json& entry) { return entry.is_int() && entry.as_int() >= 0; };
  if (!list.is_array() || !std::ranges::all_of(list.as_array(), is_number)) {
    refuse();
    return {};
  }
  for (const Json& entry : list.as_array()) numbers.insert(entry.as_int());
  return numbers;
}

/// Which layers have experts: all but the first where the key is null, and those behind the third
/// where it is absent, as in the released class.
void read_expert_layers(ConfigReader& reader, DecoderConfig& config) {
  constexpr const char* kKey = "moe_layers_enum";
  const Json* found = reader.find(kKey);
  if (found == nullptr) {
    use_experts_from(config, reader.json().contains(kKey) ? 1 : 3);
    return;
  }
  const std::set<int64_t> numbers = layer_numbers(reader, kKey, *found);
  const int64_t num_known = config.num_layers() + config.num_next_token_layers;
  if (!numbers.empty() && *numbers.rbegin() >= num_known) {
    reader.problem(cat(kKey, " names layer ", *numbers.rbegin(), "; there are ", num_known));
  }
  for (int64_t i = 0; i < config.num_layers(); ++i) {
    config.layers[static_cast<size_t>(i)].is_moe = numbers.contains(i);
  }
}

/// A layer's bounds behind silu; null and 0 mean none.
std::vector<kernels::GateBounds> read_limits(ConfigReader& reader, std::string_view key,
                                             int64_t num_layers) {
  std::vector<kernels::GateBounds> bounds(static_cast<size_t>(num_layers));
  const Json::Array* limits = listed(reader, key, num_layers);
  if (limits == nullptr) return bounds;
  for (size_t i = 0; i < bounds.size(); ++i) {
    const Json& limit = (*limits)[i];
    if (limit.is_null()) continue;
    if (!limit.is_number() || limit.as_double() < 0 || !std::isfinite(limit.as_double())) {
      reader.problem(cat(key, " has ", limit.dump(), "; a bound is at least 0, which is none"));
      return bounds;
    }
    bounds[i] = kernels::bounds_behind_silu(limit.as_double());
  }
  return bounds;
}

/// The layers that see a window, which may have other numbers of heads.
std::vector<bool> read_attention_kinds(ConfigReader& reader, DecoderConfig& config) {
  constexpr const char* kOther = "sliding_attention";
  std::vector<bool> sliding(config.layers.size(), false);
  const Json::Array* types = listed(reader, "layer_types", config.num_layers());
  for (size_t i = 0; types != nullptr && i < sliding.size(); ++i) {
    const Json& type = (*types)[i];
    sliding[i] = type == kOther;
    if (sliding[i] || type == "full_attention") continue;
    reader.problem(
        cat("layer_types holds ", type.dump(), "; known here: full_attention, ", kOther));
    break;
  }
  set_windows(config, reader.has("sliding_window") ? reader.size("sliding_window") : 0, sliding);
  const Json* other = reader.find("attention_other_setting");
  if (other == nullptr) return sliding;
  if (!other->is_object()) {
    reader.problem(cat("attention_other_setting must be an object, not ", other->kind()));
    return sliding;
  }
  ConfigReader own(*other);
  LayerOptions sizes;
  sizes.num_heads = own.size("num_attention_heads", config.num_heads);
  sizes.num_kv_heads = own.size("num_attention_groups", config.num_kv_heads);
  if (sizes.num_heads % sizes.num_kv_heads != 0) {
    own.problem(cat("num_attention_groups ", sizes.num_kv_heads,
                    " does not divide num_attention_heads ", sizes.num_heads));
  }
  if (own.size("head_dim", config.head_dim) != config.head_dim) {
    own.problem(cat("head_dim is not the ", config.head_dim, " of the other layers"));
  }
  for (const std::string& text : own.problems()) {
    reader.problem(cat("attention_other_setting.", text));
  }
  for (size_t i = 0; i < sliding.size(); ++i) {
    if (!sliding[i]) continue;
    config.layers[i].num_heads = sizes.num_heads;
    config.layers[i].num_kv_heads = sizes.num_kv_heads;
  }
  return sliding;
}

/// Whether a layer of this kind has the scaling of rope_scaling: those of `yarn_only_types`, or all
/// without it.
bool is_scaled(ConfigReader& reader, const char* kind) {
  const Json* kinds = reader.find("yarn_only_types");
  if (kinds == nullptr || !kinds->is_array() || kinds->size() == 0) return true;
  return std::ranges::any_of(kinds->as_array(), [&](const Json& entry) { return entry == kind; });
}

/// Each layer's number in a key that holds one for all or a list.
std::vector<double> numbers_of_layers(ConfigReader& reader, std::string_view key,
                                      int64_t num_layers, double fallback) {
  std::vector<double> numbers(static_cast<size_t>(num_layers), fallback);
  const Json* found = reader.find(key);
  if (found == nullptr || found->is_number()) {
    std::ranges::fill(numbers, reader.number(key, fallback));
    return numbers;
  }
  const Json::Array* list = listed(reader, key, num_layers);
  if (list == nullptr) return numbers;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!(*list)[i].is_number()) {
      reader.problem(cat(key, " must be a list of numbers, not of ", (*list)[i].kind()));
      return numbers;
    }
    numbers[i] = (*list)[i].as_double();
  }
  return numbers;
}

/// False or 0.
bool says_no(const Json& flag) {
  return flag.is_bool() ? !flag.as_bool() : flag.is_int() && flag.as_int() == 0;
}

/// Each layer's rotation: theta, the rotated part of a head, and rope_scaling by its kind.
void add_ropes(ConfigReader& reader, DecoderConfig& config, const std::vector<bool>& sliding) {
  const int64_t num_layers = config.num_layers();
  const Json* scaling = reader.find(either(reader, "rope_parameters", "rope_scaling"));
  const Json::Array* rotates = listed(reader, "use_rope_layers", num_layers);
  const auto thetas = numbers_of_layers(reader, "rope_theta", num_layers, 1e4);
  const auto parts = numbers_of_layers(reader, "partial_rotary_factors", num_layers, 1.0);
  std::vector<Json> known;
  for (size_t i = 0; i < sliding.size(); ++i) {
    if (rotates != nullptr && says_no((*rotates)[i])) continue;
    const bool has_scaling = is_scaled(reader, sliding[i] ? "sliding_attention" : "full_attention");
    Json rope =
        has_scaling && scaling != nullptr && scaling->is_object() ? *scaling : Json::object();
    rope["rope_theta"] = Json(thetas[i]);
    rope["partial_rotary_factor"] = Json(parts[i]);
    const auto same = std::ranges::find(known, rope);
    config.layers[i].rope = static_cast<int>(same - known.begin());
    if (same != known.end()) continue;
    config.ropes.push_back(
        read_rope(reader, &rope, config, {.theta_key = "", .has_partial_default = true}));
    known.push_back(std::move(rope));
  }
}

void add_step_experts(ConfigReader& reader, DecoderConfig& config) {
  moe::MoEConfig moe = read_experts(reader, config,
                                    {.num_experts = "moe_num_experts",
                                     .default_num_experts = 288,
                                     .default_inner_dim = 1280,
                                     .num_chosen = "moe_top_k",
                                     .default_num_chosen = 8});
  moe.n_shared_experts = 1;
  moe.shared_expert_inter_dim =
      reader.size(either(reader, "share_expert_dim", "share_expert_dims"), 1280);
  moe.are_gates_apart = true;
  const std::string scores = reader.text("moe_router_activation", "softmax");
  if (scores != "sigmoid" && scores != "softmax") {
    reader.problem(
        cat("moe_router_activation '", scores, "' is not known here; known: sigmoid, softmax"));
  }
  moe.score_func =
      scores == "sigmoid" ? moe::ScoreFunction::kSigmoid : moe::ScoreFunction::kSoftmax;
  moe.has_correction_bias = reader.flag("use_moe_router_bias", false);
  if (moe.has_correction_bias && scores != "sigmoid") {
    reader.problem("use_moe_router_bias is for sigmoid scores (moe_router_activation)");
  }
  moe.is_router_float32 = reader.flag("need_fp32_gate", false);
  moe.norm_topk_prob = true;
  moe.route_scale = reader.number("moe_router_scaling_factor", 1.0);
  moe.gate_bias_update_factor = read_bias_update_factor(reader, 0);
  config.moe = moe;
}

/// Findings for what neither the released class nor upstream computes.
void refuse_others(ConfigReader& reader, DecoderConfig& config) {
  for (const char* key : {"attention_bias", "mlp_bias", "sink", "use_mfa"}) {
    if (reader.flag(key, false)) reader.problem(cat(key, " true is not built in this version"));
  }
  const Json* ropes = reader.find("rope_parameters");
  if (ropes != nullptr && (ropes->find("full_attention") || ropes->find("sliding_attention"))) {
    reader.problem(
        "rope_parameters is by layer type; this family's files have rope_theta, "
        "partial_rotary_factors and rope_scaling");
  }
  for (const char* key : {"zero_centered", "norm_expert_weight"}) {
    if (!reader.flag(key, true)) reader.problem(cat(key, " false is not built in this version"));
  }
  if (config.activation != kernels::Activation::kSilu) {
    reader.problem("hidden_act is not silu, which this family's MLPs have");
  }
  if (config.is_head_tied) {
    reader.problem("tie_word_embeddings is true; this family has a head of its own");
    config.is_head_tied = false;
  }
}

DecoderConfig read_step3p5(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false,
                                              .head_dim = 128,
                                              .max_positions = 128000,
                                              .norm_eps = 1e-5,
                                              .padding_idx = 1});
  config.num_kv_heads = reader.size(either(reader, "num_attention_groups", "num_key_value_heads"));
  if (config.num_heads % config.num_kv_heads != 0) {
    reader.problem(cat("num_attention_groups ", config.num_kv_heads,
                       " does not divide num_attention_heads ", config.num_heads));
  }
  config.norm = NormKind::kRmsPlusOne;
  config.qk_norm = QkNorm::kPerHead;
  config.has_head_gates = reader.flag("use_head_wise_attn_gate", false);
  read_next_token_layers(reader, config);
  add_ropes(reader, config, read_attention_kinds(reader, config));
  add_step_experts(reader, config);
  read_expert_layers(reader, config);
  const auto of_mlps = read_limits(reader, "swiglu_limits_shared", config.num_layers());
  const auto of_experts = read_limits(reader, "swiglu_limits", config.num_layers());
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].mlp_bounds = of_mlps[i];
    if (config.layers[i].is_moe) config.layers[i].expert_bounds = of_experts[i];
  }
  refuse_others(reader, config);
  return config;
}

}  // namespace

/// Step 3.5: full layers and layers with a window and other numbers of heads, each with a rotation
/// of its own; a gate for each head, norms times 1 + weight, experts beside a shared one, bounds
/// behind silu in some layers.
extern const Family kStep3p5{
    .architecture = "Step3p5ForCausalLM",
    .model_type = "step3p5",
    .config_class = "Step3p5Config",
    .layer_class = "Step3p5DecoderLayer",
    .experts_class = "Step3p5MoEMLP",
    .read_config = read_step3p5,
    .names = {.moe = "moe",
              .correction = "router_bias",
              .experts = "",
              .shared_experts = "share_expert",
              .are_shared_beside = true},
    .flops = layered_flops,
};

}  // namespace automodel::models::decoder

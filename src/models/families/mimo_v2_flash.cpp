#include <algorithm>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// The entries of a list of zeros and ones, one for each layer; nullopt where it is absent or
/// something else, which is a finding.
std::optional<std::vector<bool>> read_pattern(ConfigReader& reader, std::string_view key,
                                              int64_t num_layers) {
  const Json* found = reader.find(key);
  if (found == nullptr) return std::nullopt;
  const auto is_bit = [](const Json& entry) {
    return entry.is_int() && (entry.as_int() == 0 || entry.as_int() == 1);
  };
  if (!found->is_array() || static_cast<int64_t>(found->size()) != num_layers ||
      !std::ranges::all_of(found->as_array(), is_bit)) {
    reader.problem(cat(key, " must be a list of zeros and ones, one for each layer"));
    return std::nullopt;
  }
  std::vector<bool> bits;
  for (const Json& entry : found->as_array()) bits.push_back(entry.as_int() == 1);
  return bits;
}

/// A window of released files counts the tokens before the query, sliding_window alone the query
/// too.
int64_t read_window(ConfigReader& reader) {
  constexpr const char* kReleased = "sliding_window_size";
  return reader.has(kReleased) ? reader.size(kReleased) + 1 : reader.size("sliding_window", 128);
}

/// Which layers have a window: layer_types, hybrid_layer_pattern of released files, or all but the
/// first and every sixth.
std::vector<bool> read_kinds(ConfigReader& reader, DecoderConfig& config) {
  const auto pattern = read_pattern(reader, "hybrid_layer_pattern", config.num_layers());
  const auto is_sliding = [&](int64_t layer) {
    return pattern ? (*pattern)[static_cast<size_t>(layer)] : layer > 0 && (layer + 1) % 6 != 0;
  };
  if (!pattern && !reader.has("layer_types") && reader.has("hybrid_block_size")) {
    reader.problem("hybrid_block_size is not read in this version; hybrid_layer_pattern lists");
  }
  return add_windows(reader, config, read_window(reader), is_sliding);
}

/// Layers with a window have heads of keys of their own, as a rule twice as many.
void read_mimo_heads(ConfigReader& reader, DecoderConfig& config,
                     const std::vector<bool>& sliding) {
  config.value_dim = reader.size("v_head_dim", 128);
  config.value_scale = reader.number("attention_value_scale", 0.707);
  if (reader.json().contains("attention_value_scale") && !reader.has("attention_value_scale")) {
    config.value_scale = 1.0;  // null: none
  }
  const auto same = [&](const char* key, int64_t wanted) {
    if (reader.size(key, wanted) == wanted) return;
    reader.problem(cat(key, " is not the ", wanted, " of the other layers"));
  };
  same("swa_head_dim", config.head_dim);
  same("swa_v_head_dim", config.value_dim);
  const int64_t num_heads = reader.size("swa_num_attention_heads", config.num_heads);
  const int64_t num_kv_heads = reader.size("swa_num_key_value_heads", 2 * config.num_kv_heads);
  if (num_heads % num_kv_heads != 0) {
    reader.problem(cat("layers with a window have ", num_kv_heads,
                       " heads of keys (swa_num_key_value_heads, or twice num_key_value_heads), "
                       "which do not divide their ",
                       num_heads, " heads"));
    return;
  }
  for (size_t i = 0; i < sliding.size(); ++i) {
    if (!sliding[i]) continue;
    config.layers[i].num_heads = num_heads;
    config.layers[i].num_kv_heads = num_kv_heads;
  }
}

void read_sinks(ConfigReader& reader, DecoderConfig& config) {
  const bool of_windows = reader.flag("add_swa_attention_sink_bias", true);
  const bool of_full = reader.flag("add_full_attention_sink_bias", false);
  config.has_attention_sinks = of_windows || of_full;
  config.are_sinks_of_windows = !of_full;
  config.are_sinks_frozen = true;
  if (of_full && !of_windows) {
    reader.problem("add_full_attention_sink_bias without add_swa_attention_sink_bias is not built");
  }
}

/// Rope 0 for full layers, rope 1 for those with a window: rope_parameters by layer type, or
/// rope_theta and swa_rope_theta of released files.
void add_mimo_ropes(ConfigReader& reader, DecoderConfig& config, const std::vector<bool>& sliding) {
  const Json* found = reader.find("rope_parameters");
  const auto nested = [&](const char* type) -> const Json* {
    return found != nullptr && found->is_object() ? found->find(type) : nullptr;
  };
  const auto rope = [&](const char* type, double theta, const char* theta_key) {
    return read_rope(reader, nested(type), config,
                     {.theta = theta,
                      .theta_key = theta_key,
                      .has_partial_default = true,
                      .partial_default = 0.334});
  };
  config.ropes = {rope("full_attention", 5e6, "rope_theta"),
                  rope("sliding_attention", 1e4, "swa_rope_theta")};
  if (reader.has("rope_scaling")) reader.problem("rope_scaling is not built for this family");
  set_ropes_by_window(config, sliding);
}

void add_mimo_experts(ConfigReader& reader, DecoderConfig& config) {
  const CorrectedDefaults defaults{.keys = {.num_experts = "n_routed_experts",
                                            .num_experts_alias = "num_local_experts",
                                            .default_num_experts = 256,
                                            .default_inner_dim = 2048,
                                            .default_num_chosen = 8},
                                   .own_keys = {.num_shared = ""}};
  add_corrected_experts(reader, config, defaults);
  config.moe->n_shared_experts = 0;
  if (reader.count("n_shared_experts", 0) != 0) {
    reader.problem("n_shared_experts is not built for this family; its files have none");
  }
  const auto only = [&](const char* key, const char* known) {
    if (const std::string found = reader.text(key, known); found != known) {
      reader.problem(cat(key, " '", found, "' is not built; built: ", known));
    }
  };
  only("scoring_func", "sigmoid");
  only("topk_method", "noaux_tc");
  only("attention_projection_layout", "split");
  use_experts_from(config, 1);
  if (const auto pattern = read_pattern(reader, "moe_layer_freq", config.num_layers())) {
    for (size_t i = 0; i < pattern->size(); ++i) config.layers[i].is_moe = (*pattern)[i];
  }
  read_mlp_layer_types(reader, config);
}

DecoderConfig read_mimo(ConfigReader& reader) {
  DecoderConfig config = read_common(
      reader,
      {.requires_kv_heads = false, .head_dim = 192, .max_positions = 131072, .norm_eps = 1e-5});
  config.norm_eps = reader.not_negative("layernorm_epsilon", config.norm_eps);
  config.has_qkv_bias = reader.flag("attention_bias", false);
  const std::vector<bool> sliding = read_kinds(reader, config);
  read_mimo_heads(reader, config, sliding);
  read_sinks(reader, config);
  add_mimo_ropes(reader, config, sliding);
  add_mimo_experts(reader, config);
  return config;
}

}  // namespace

/// MiMo-V2-Flash: full layers, and layers with a window, sinks and more heads of keys; v narrower
/// than q and k, and scaled; sigmoid experts with a correction, none shared.
extern const Family kMiMoV2Flash{
    .architecture = "MiMoV2FlashForCausalLM",
    .model_type = "mimo_v2_flash",
    .config_class = "MiMoV2FlashConfig",
    .layer_class = "MiMoV2FlashDecoderLayer",
    .experts_class = "MiMoV2FlashExperts",
    .upstream = {.config_class =
                     "nemo_automodel.components.models.mimo_v2_flash.config.MiMoV2FlashConfig"},
    .read_config = read_mimo,
    .names = {.sinks = "attention_sink_bias"},
    .kept_prefixes = {"model.mtp."},
    .stand_ins = {{{"self_attn.attention_sink_bias", "self_attn.sinks"}}},
    .flops = layered_flops,
};

}  // namespace automodel::models::decoder

#include "models/decoder/moe_reader.h"

#include <algorithm>

#include "core/text.h"

namespace automodel::models::decoder {

namespace {

int64_t sized(ConfigReader& reader, std::string_view key, int64_t fallback) {
  return fallback == 0 ? reader.size(key) : reader.size(key, fallback);
}

std::vector<int64_t> read_dense_layers(ConfigReader& reader) {
  std::vector<int64_t> layers;
  const Json* found = reader.find("mlp_only_layers");
  if (found == nullptr) return layers;
  if (!found->is_array()) {
    reader.problem("mlp_only_layers must be a list of layer numbers");
    return layers;
  }
  for (const Json& layer : found->as_array()) {
    if (layer.is_int()) {
      layers.push_back(layer.as_int());
    } else {
      reader.problem("mlp_only_layers must be a list of layer numbers");
    }
  }
  return layers;
}

constexpr const char* kGatedActivations =
    "hidden_act of a mixture of experts must be silu or gelu_pytorch_tanh here";

}  // namespace

moe::MoEConfig read_experts(ConfigReader& reader, const DecoderConfig& config,
                            const MoEKeys& keys) {
  moe::MoEConfig moe;
  moe.dim = config.hidden_size;
  const bool has_alias = !keys.num_experts_alias.empty() && !reader.has(keys.num_experts) &&
                         reader.has(keys.num_experts_alias);
  const std::string_view count_key = has_alias ? keys.num_experts_alias : keys.num_experts;
  moe.n_routed_experts = sized(reader, count_key, keys.default_num_experts);
  moe.n_activated_experts = sized(reader, keys.num_chosen, keys.default_num_chosen);
  moe.moe_inter_dim = sized(reader, keys.inner_dim, keys.default_inner_dim);
  moe.shared_expert_activation = config.activation;
  switch (config.activation) {
    case kernels::Activation::kSilu:
      moe.expert_activation = moe::ExpertActivation::kSwiglu;
      break;
    case kernels::Activation::kGeluTanh:
      moe.expert_activation = moe::ExpertActivation::kGeglu;
      break;
    case kernels::Activation::kReluSquared:
      moe.expert_activation = moe::ExpertActivation::kRelu2;  // which has no gate
      if (config.is_mlp_gated) reader.problem(kGatedActivations);
      break;
    default:
      reader.problem(kGatedActivations);
  }
  if (moe.n_activated_experts > moe.n_routed_experts) {
    reader.problem(cat(keys.num_chosen, " ", moe.n_activated_experts, " is more than ", count_key,
                       " ", moe.n_routed_experts));
    moe.n_activated_experts = moe.n_routed_experts;
  }
  return moe;
}

void refuse_router_jitter(ConfigReader& reader) {
  if (reader.number("router_jitter_noise", 0) != 0) {
    reader.problem("router_jitter_noise is not built in this version; 0 turns it off");
  }
}

void use_experts_from(DecoderConfig& config, int64_t first) {
  for (int64_t i = 0; i < config.num_layers(); ++i) {
    config.layers[static_cast<size_t>(i)].is_moe = i >= first;
  }
}

void use_experts_by_step(ConfigReader& reader, DecoderConfig& config) {
  const int64_t step = reader.size("decoder_sparse_step", 1);
  const std::vector<int64_t> dense = read_dense_layers(reader);
  for (int64_t i = 0; i < config.num_layers(); ++i) {
    const bool is_dense = std::find(dense.begin(), dense.end(), i) != dense.end();
    config.layers[static_cast<size_t>(i)].is_moe = !is_dense && (i + 1) % step == 0;
  }
}

void read_mlp_layer_types(ConfigReader& reader, DecoderConfig& config) {
  const Json* types = reader.find("mlp_layer_types");
  if (types == nullptr) return;
  const bool fits = types->is_array() && static_cast<int64_t>(types->size()) == config.num_layers();
  if (!fits) {
    reader.problem("mlp_layer_types must be a list with an entry for each layer");
    return;
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const Json& type = types->as_array()[i];
    const bool is_known = type.is_string() && (type == "dense" || type == "sparse");
    if (!is_known) {
      reader.problem("mlp_layer_types has entries \"dense\" and \"sparse\"");
      return;
    }
    config.layers[i].is_moe = type == "sparse";
  }
}

double read_bias_update_factor(ConfigReader& reader, double fallback) {
  const Json* overrides = reader.find("moe_overrides");
  if (overrides == nullptr || !overrides->is_object()) return fallback;
  ConfigReader own(*overrides);
  const double factor = own.number("gate_bias_update_factor", fallback);
  for (const std::string& text : own.problems()) reader.problem(cat("moe_overrides.", text));
  return factor;
}

void read_expert_groups(ConfigReader& reader, moe::MoEConfig& moe,
                        const CorrectedDefaults& defaults) {
  const std::string_view key = defaults.own_keys.num_groups;
  moe.n_expert_groups = reader.size(key, defaults.groups.num_groups);
  moe.n_limited_groups = reader.size("topk_group", defaults.groups.num_limited);
  if (moe.n_routed_experts % moe.n_expert_groups != 0) {
    reader.problem(cat(key, " ", moe.n_expert_groups, " does not divide ",
                       defaults.keys.num_experts, " ", moe.n_routed_experts));
    moe.n_expert_groups = 1;
  }
  if (moe.n_limited_groups > moe.n_expert_groups) {
    reader.problem(
        cat("topk_group ", moe.n_limited_groups, " is more than ", key, " ", moe.n_expert_groups));
    moe.n_limited_groups = moe.n_expert_groups;
  }
  const int64_t choosable = moe.n_routed_experts / moe.n_expert_groups * moe.n_limited_groups;
  if (moe.n_activated_experts > choosable) {
    reader.problem(cat(defaults.keys.num_chosen, " ", moe.n_activated_experts, " is more than the ",
                       choosable, " experts of topk_group ", moe.n_limited_groups, " groups"));
    moe.n_limited_groups = moe.n_expert_groups;
  }
}

void add_corrected_experts(ConfigReader& reader, DecoderConfig& config,
                           const CorrectedDefaults& defaults) {
  moe::MoEConfig moe = read_experts(reader, config, defaults.keys);
  moe.n_shared_experts = reader.size(defaults.own_keys.num_shared, 1);
  read_expert_groups(reader, moe, defaults);
  moe.score_func = moe::ScoreFunction::kSigmoid;
  moe.has_correction_bias = true;
  moe.is_router_float32 = true;
  moe.norm_topk_prob = reader.flag(defaults.own_keys.norm_topk_prob, defaults.norm_topk_prob);
  moe.route_scale = reader.number("routed_scaling_factor", defaults.route_scale);
  moe.gate_bias_update_factor = read_bias_update_factor(reader, defaults.bias_update_factor);
  config.moe = moe;
  use_experts_from(config, reader.count("first_k_dense_replace", defaults.num_dense));
}

CorrectedDefaults deepseek_experts() {
  return {.keys = {.num_experts = "n_routed_experts",
                   .num_experts_alias = "num_local_experts",
                   .default_num_experts = 256,
                   .default_inner_dim = 2048,
                   .default_num_chosen = 8},
          .groups = {.num_groups = 8, .num_limited = 4},
          .route_scale = 2.5,
          .num_dense = 3,
          .bias_update_factor = 1e-3};
}

void read_next_token_layers(ConfigReader& reader, DecoderConfig& config) {
  constexpr const char* kKey = "num_nextn_predict_layers";
  constexpr int64_t kMost = 64;
  config.num_next_token_layers = reader.count(kKey, 0);
  if (config.num_next_token_layers <= kMost) return;
  reader.problem(cat(kKey, " is ", config.num_next_token_layers, "; at most ", kMost, " is right"));
  config.num_next_token_layers = 0;
}

}  // namespace automodel::models::decoder

#include "recipes/read/config_changes.h"

#include <algorithm>
#include <limits>

#include "config/bind.h"
#include "config/other_names.h"
#include "core/is_one_of.h"
#include "core/json_watch.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "models/facts.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// Keys of Hugging Face configurations that recipes change; they are known even without a
/// config.json.
const std::vector<std::string> kConfigKeys = {"architectures",
                                              "model_type",
                                              "vocab_size",
                                              "hidden_size",
                                              "intermediate_size",
                                              "num_hidden_layers",
                                              "num_attention_heads",
                                              "num_key_value_heads",
                                              "head_dim",
                                              "hidden_act",
                                              "hidden_activation",
                                              "max_position_embeddings",
                                              "initializer_range",
                                              "rms_norm_eps",
                                              "use_cache",
                                              "tie_word_embeddings",
                                              "rope_theta",
                                              "rope_scaling",
                                              "rope_parameters",
                                              "attention_bias",
                                              "attention_dropout",
                                              "mlp_bias",
                                              "sliding_window",
                                              "use_sliding_window",
                                              "max_window_layers",
                                              "layer_types",
                                              "pad_token_id",
                                              "bos_token_id",
                                              "eos_token_id",
                                              "num_labels",
                                              "text_config",
                                              "n_embd",
                                              "n_layer",
                                              "n_head",
                                              "n_positions",
                                              "n_ctx",
                                              "num_local_experts",
                                              "num_experts",
                                              "num_experts_per_tok",
                                              "moe_intermediate_size",
                                              "mtp_loss_scaling_factor",
                                              "num_nextn_predict_layers",
                                              "mtp_use_repeated_layer",
                                              "mtp_layers_block_type",
                                              "mtp_hybrid_override_pattern",
                                              "partial_rotary_factor",
                                              "query_pre_attn_scalar",
                                              "attn_logit_softcapping",
                                              "final_logit_softcapping",
                                              "embedding_multiplier",
                                              "logits_scaling",
                                              "residual_multiplier",
                                              "attention_multiplier",
                                              "router_aux_loss_coef",
                                              "n_routed_experts",
                                              "first_k_dense_replace",
                                              "index_topk",
                                              "index_n_heads",
                                              "index_head_dim",
                                              "index_topk_freq",
                                              "index_topk_pattern",
                                              "indexer_types",
                                              "compress_ratios",
                                              "compress_rates",
                                              "compress_rope_theta",
                                              "num_hash_layers",
                                              "mlp_layer_types",
                                              "hc_mult",
                                              "hc_sinkhorn_iters",
                                              "hc_eps",
                                              "swiglu_limit",
                                              "swiglu_limits",
                                              "swiglu_limits_shared",
                                              "moe_layers_enum",
                                              "moe_num_experts",
                                              "moe_top_k",
                                              "share_expert_dim",
                                              "num_attention_groups",
                                              "attention_other_setting",
                                              "use_head_wise_attn_gate",
                                              "partial_rotary_factors",
                                              "yarn_only_types",
                                              "use_rope_layers",
                                              "moe_router_activation",
                                              "moe_router_scaling_factor",
                                              "use_moe_router_bias",
                                              "need_fp32_gate",
                                              "output_router_logits",
                                              "attn_config",
                                              "quantization_config",
                                              "layer_norm_epsilon",
                                              "resid_pdrop",
                                              "embd_pdrop",
                                              "attn_pdrop",
                                              "canvas_length",
                                              "self_conditioning",
                                              "freeze_router",
                                              "clip_qkv",
                                              "use_qkv_bias",
                                              "use_parallel_residual",
                                              "hidden_dropout",
                                              "rotary_pct",
                                              "topk_method",
                                              "shared_intermediate_size",
                                              "attention_k_eq_v",
                                              "attention_value_scale",
                                              "gating",
                                              "global_head_dim",
                                              "hybrid_layer_pattern",
                                              "moe_layer_freq",
                                              "moe_routed_scaling_factor",
                                              "num_attention_heads_per_layer",
                                              "num_global_key_value_heads",
                                              "shared_expert_intermediate_size",
                                              "sliding_window_size",
                                              "swa_num_key_value_heads",
                                              "swa_rope_theta",
                                              "v_head_dim",
                                              "num_layers",
                                              "num_heads",
                                              "n_inner",
                                              "ffn_dim",
                                              "window_size",
                                              "rotary_dim",
                                              "layer_rope_theta",
                                              "use_post_norm",
                                              "scale_emb",
                                              "scale_depth",
                                              "dim_model_base"};

/// What upstream's configuration of Kimi Linear has besides.
const std::vector<std::string> kKimiKeys = {"kda_mode", "kda_unpad_inputs", "kda_use_fused_gate",
                                            "kda_use_qk_l2norm_in_kernel"};

/// Kimi's delta attention has one way of being computed here: in chunks, padding left out, q and k
/// of length one.
void check_kda_key(const Node& change, Diagnostics& diagnostics) {
  if (change.key() == "kda_mode") {
    const auto mode = config::read_value<std::string>(change, diagnostics);
    if (mode && *mode != "chunk" && *mode != "fused_recurrent") {
      diagnostics.error(change,
                        cat("kda_mode takes chunk or fused_recurrent, found '", *mode, "'"));
    }
    if (!mode || *mode != "fused_recurrent") return;
  } else if (!config::read_value<bool>(change, diagnostics)) {
    return;
  }
  diagnostics.warning_at_key(
      change,
      cat("'", change.key(),
          "' has no effect here: it chooses among kernels of the same numbers, and there is "
          "one here, in chunks"));
}

/// Whether a key of multi-token prediction has a value that it can have. The family's reader finds
/// what is wrong with lists of layers.
bool has_next_token_value(const Node& change, Diagnostics& diagnostics) {
  const std::string& key = change.key();
  if (change.is_null()) return true;
  if (key == "num_nextn_predict_layers") {
    return config::read_value<int64_t>(change, diagnostics, {.minimum = 0}).has_value();
  }
  if (key == "mtp_use_repeated_layer") {
    return config::read_value<bool>(change, diagnostics).has_value();
  }
  return key != "mtp_loss_scaling_factor" ||
         config::read_value<double>(change, diagnostics, {.minimum = 0}).has_value();
}

/// Reports wrong values of the keys of multi-token prediction, which are taken back, and keys that
/// have no effect or ask for what a family does not have.
void check_next_tokens(const Node& change, ModelRecipe& plan, Diagnostics& diagnostics) {
  constexpr const char* kDepths = "num_nextn_predict_layers";
  constexpr const char* kMtp = "multi-token prediction";
  const std::string& key = change.key();
  const bool is_right = has_next_token_value(change, diagnostics);
  if (!plan.hf_config.is_object()) return;
  if (!is_right) {
    plan.hf_config.erase(key);
    return;
  }
  if (models::num_next_tokens(plan.hf_config) > 0) return;
  if (key != kDepths) {
    diagnostics.warning_at_key(change, cat("'", key, "' has no effect here: there is no ", kMtp));
  } else if (!change.is_null() && plan.hf_config.at(kDepths).as_int() > 0) {
    diagnostics.unsupported(change,
                            cat(kMtp, " of ", models::find_family(plan.hf_config).architecture,
                                " is not in this version; it is there for NemotronHForCausalLM"));
  }
}

/// Reports configuration keys that have no effect.
const std::vector<std::string> kTokenKeys = {"bos_token_id", "eos_token_id",
                                             "decoder_start_token_id"};

/// Refuses what cannot be a token, or tokens, of the model's vocabulary.
void check_token_ids(const Node& change, const Json& hf_config, Diagnostics& diagnostics) {
  if (change.is_null()) return;
  const Json* vocab_size = hf_config.is_object() ? hf_config.find("vocab_size") : nullptr;
  const bool is_counted = vocab_size != nullptr && vocab_size->is_int();
  const int64_t last = is_counted ? vocab_size->as_int() - 1 : std::numeric_limits<int64_t>::max();
  const auto is_token = [&](const Node& id) {
    return id.int_value() && *id.int_value() >= 0 && *id.int_value() <= last;
  };
  const bool is_right =
      change.is_sequence() ? std::ranges::all_of(change.children(), is_token) : is_token(change);
  if (is_right) return;
  const std::string range = is_counted ? cat("0 to ", last) : "at least 0";
  diagnostics.error(change, cat(change.key(), " is a token's number, ", range,
                                ", or a list of these; found ", change.describe()));
}

void check_idle_change(const Node& change, Diagnostics& diagnostics) {
  const std::string& key = change.key();
  if (key.starts_with("kda_")) {
    check_kda_key(change, diagnostics);
  } else if (key == "use_cache") {
    diagnostics.warning_at_key(
        change, cat("'", key, "' has no effect here: training a language model does not read it"));
  }
}

/// Sets a key of a config.json. Of a configuration inside it, as transformers does, the keys that
/// the change names; `known` are those that any configuration may have.
void set_config_key(Json& hf_config, const Node& change, const std::vector<std::string>& known,
                    Diagnostics& diagnostics) {
  Json& value = hf_config[change.key()];
  const bool is_part = change.key().ends_with("_config") && change.key() != "quantization_config";
  if (!is_part || !value.is_object() || !change.is_mapping()) {
    value = config::to_json(change);
    return;
  }
  std::vector<std::string> of_part = known;
  for (const auto& [key, unused] : value.as_object()) of_part.push_back(key);
  for (const Node& child : change.children()) {
    if (!is_one_of(of_part, child.key())) {
      diagnostics.unknown_key(
          child, cat("unknown key '", child.key(), "': no key of ", change.key(),
                     " in the model's config.json", did_you_mean(child.key(), of_part)));
    }
    value[child.key()] = config::to_json(child);
  }
}

/// Whether `rope_parameters` of a configuration takes the place of its `rope_theta`. Families with
/// rotations by kinds of layers read both.
bool has_theta_elsewhere(const Json& config) {
  const std::string type = config.get("model_type", "");
  if (type.starts_with("gemma3") || type.starts_with("olmo3")) return false;
  const Json* scaling = config.find("rope_scaling");
  const Json* parameters = config.find("rope_parameters");
  return (scaling == nullptr || scaling->size() == 0) && parameters != nullptr &&
         parameters->contains("rope_theta");
}

/// The keys among `keys` that no part of a model looks up while it is built.
std::vector<std::string> unread_keys(const Json& config, const std::vector<std::string>& keys) {
  const JsonWatch watch;
  models::build_causal_lm(config, at::kFloat)->initial_values();
  std::vector<std::string> unread;
  for (const std::string& key : keys) {
    if (!watch.has_seen(key)) unread.push_back(key);
  }
  return unread;
}

}  // namespace

void check_inline_keys(const Node& arguments, Diagnostics& diagnostics) {
  for (const Node& child : arguments.children()) {
    if (is_one_of(kConfigKeys, child.key())) continue;
    if (const auto meant = closest_match(child.key(), kConfigKeys);
        meant && edit_distance(child.key(), *meant) == 1) {
      diagnostics.error_at_key(
          child, cat("unknown key '", child.key(), "'", did_you_mean(child.key(), kConfigKeys)));
    }
  }
}

void apply_config_changes(const std::vector<Node>& changes, ModelRecipe& plan,
                          Diagnostics& diagnostics) {
  std::vector<std::string> known = kConfigKeys;
  if (!plan.hf_config.is_object() ||
      plan.hf_config.get("model_type", "").starts_with("kimi_linear")) {
    known.insert(known.end(), kKimiKeys.begin(), kKimiKeys.end());
  }
  if (plan.hf_config.is_object()) {
    for (const auto& [key, value] : plan.hf_config.as_object()) known.push_back(key);
  }
  for (const Node& child : changes) {
    if (!is_one_of(known, child.key())) {
      std::vector<std::string> candidates = known;
      for_each_field<ModelSection>([&](const auto& field) { candidates.push_back(field.name); });
      const std::string hint = config::hint_for_key(child, candidates, diagnostics);
      if (plan.hf_config.is_object()) {
        diagnostics.unknown_key(
            child, cat("unknown key '", child.key(),
                       "': neither a model option nor a key of its config.json", hint));
      } else {
        diagnostics.unsupported(child,
                                cat("'", child.key(),
                                    "' is no model option, and the model's config.json, which "
                                    "may have it, is not here",
                                    hint));
      }
      continue;
    }
    check_idle_change(child, diagnostics);
    if (is_one_of(kTokenKeys, child.key())) check_token_ids(child, plan.hf_config, diagnostics);
    if (plan.hf_config.is_object()) set_config_key(plan.hf_config, child, known, diagnostics);
  }
  for (const Node& child : changes) {
    if (child.key() == "num_nextn_predict_layers" || child.key().starts_with("mtp_")) {
      check_next_tokens(child, plan, diagnostics);
    }
  }
}

void warn_of_unread_changes(const std::vector<Node>& changes, const ModelRecipe& plan,
                            Diagnostics& diagnostics) {
  // Data, weights and exports read these, or another check knows them.
  static const std::vector<std::string> elsewhere = {"architectures",
                                                     "bos_token_id",
                                                     "eos_token_id",
                                                     "pad_token_id",
                                                     "vocab_size",
                                                     "num_labels",
                                                     "use_cache",
                                                     "dtype",
                                                     "torch_dtype",
                                                     "quantization_config",
                                                     "transformers_version",
                                                     "num_nextn_predict_layers"};
  constexpr int64_t kWildSize =
      1 << 24;  // a model of that many parts of anything is not built to look at it
  Json config = plan.hf_config;
  const bool is_buildable = config.is_object() && models::find_family(config).is_known &&
                            models::check_config(config).empty();
  if (!is_buildable) return;
  std::vector<std::string> keys, wild;
  for (const Node& child : changes) {
    const Json* value = config.find(child.key());
    if (value == nullptr) continue;  // refused
    if (value->is_int() && value->as_int() > kWildSize) {
      wild.push_back(child.key());
      continue;
    }
    const bool is_known_elsewhere = is_one_of(elsewhere, child.key()) ||
                                    child.key().starts_with("kda_") ||
                                    child.key().starts_with("mtp_");
    if (!is_known_elsewhere) keys.push_back(child.key());
  }
  if (keys.empty()) return;
  // As if a wild number were not asked for: whether it is read is not found out.
  for (const std::string& key : wild) config.erase(key);
  if (!wild.empty() && !models::check_config(config).empty()) return;
  const std::vector<std::string> unread = unread_keys(config, keys);
  for (const Node& child : changes) {
    if (child.key() == "rope_theta" && has_theta_elsewhere(config)) {
      diagnostics.warning_at_key(
          child,
          "'rope_theta' has no effect: the configuration's rope_parameters has one, which counts");
    } else if (is_one_of(unread, child.key())) {
      diagnostics.warning_at_key(child,
                                 cat("'", child.key(), "' has no effect on training: this ",
                                     config.get("model_type", "model"), " does not read it"));
    }
  }
}

}  // namespace automodel::recipes

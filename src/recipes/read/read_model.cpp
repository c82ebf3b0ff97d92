#include "recipes/read/read_model.h"

#include <algorithm>

#include "checkpoint/hf_folder.h"
#include "config/bind.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json_watch.h"
#include "hub/cache.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "models/facts.h"
#include "recipes/read/backend_section.h"
#include "recipes/read/gpt2_builder.h"
#include "recipes/read/inactive_sections.h"
#include "recipes/read/recipe.h"
#include "recipes/read/recipe_paths.h"
#include "recipes/read/section_targets.h"
#include "recipes/read/targets_simple.h"
#include "tensor/dtype.h"

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
                                              "v_head_dim"};

/// What upstream's configuration of Kimi Linear has besides.
const std::vector<std::string> kKimiKeys = {"kda_mode", "kda_unpad_inputs", "kda_use_fused_gate",
                                            "kda_use_qk_l2norm_in_kernel"};

bool contains(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

/// Warns once of all keys that choose among implementations.
void warn_of_kernels(const Node& backend, Diagnostics& diagnostics) {
  std::vector<std::string> idle;
  for (const Node& child : backend.children()) {
    const bool is_read = child.key() == "_target_" || BackendSection::reads(child.key());
    if (!is_read && !child.is_null()) idle.push_back(child.key());
  }
  if (idle.empty()) return;
  diagnostics.warning_at_key(
      backend,
      cat("no effect here: ", join(idle, ", "),
          "; they choose among kernels of other libraries, and there is one of each here"));
}

/// True records whole steps; upstream's mapping of parts of a model does nothing.
void read_cuda_graph(const Node& graph, ModelRecipe& plan, Diagnostics& diagnostics) {
  if (const auto value = graph.bool_value()) {
    plan.records_steps = *value;
  } else if (graph.is_mapping()) {
    diagnostics.warning_at_key(graph,
                               "no effect here: cuda_graph of parts of a model; cuda_graph: true "
                               "records whole steps");
  } else {
    diagnostics.error(graph, cat("expected true or false, found ", graph.describe()));
  }
}

void read_backend(const Node& backend, ModelRecipe& plan, Diagnostics& diagnostics) {
  if (backend.is_null()) return;
  Node known = backend;
  if (Node* fp8 = known.find("te_fp8"); fp8 != nullptr && fp8->is_mapping()) {
    check_section_target(*fp8, diagnostics);
    fp8->erase("_target_");
  }
  const auto section = config::bind<BackendSection>(
      known, diagnostics, {.legacy_keys = {}, .other_keys = {"_target_"}});
  if (!backend.is_mapping()) return;
  check_section_target(backend, diagnostics);
  plan.enables_fsdp_optimizations = section.enable_fsdp_optimizations;
  plan.has_fake_balanced_gate = section.fake_balanced_gate;
  const auto warn_of_fp8 = [&](const char* key) {
    diagnostics.warning_at_key(*backend.find(key), cat("no effect here: ", key, "; ", kNoFp8));
  };
  if (section.te_fp8) warn_of_fp8("te_fp8");
  if (section.experts && section.experts->find("mxfp") != std::string::npos) {
    warn_of_fp8("experts");
  }
  if (section.fake_gate_noise != 0) {
    diagnostics.unsupported(*backend.find("fake_gate_noise"),
                            "noise on a balanced gate is not in this version");
  }
  if (section.benchmark_static_routing) {
    const Node& place = *backend.find("benchmark_static_routing");
    if (plan.has_fake_balanced_gate) {
      diagnostics.warning_at_key(place,
                                 "no effect here: benchmark_static_routing; the routes of a "
                                 "balanced gate depend on positions only");
    } else {
      diagnostics.error(place, "benchmark_static_routing needs fake_balanced_gate: true");
    }
  }
  if (section.cuda_graph && !section.cuda_graph->is_null()) {
    read_cuda_graph(*backend.find("cuda_graph"), plan, diagnostics);
  }
  if (section.gate_precision) {
    const auto dtype = tensor::parse_dtype(*section.gate_precision);
    if (!dtype) {
      diagnostics.error(*backend.find("gate_precision"),
                        cat("unknown dtype '", *section.gate_precision, "'"));
    } else if (*dtype != at::kFloat) {
      diagnostics.unsupported(*backend.find("gate_precision"),
                              "routers in another dtype than float32 are not in this version");
    }
  }
  warn_of_kernels(backend, diagnostics);
}

/// Reports keys of an inline configuration that no family has.
void check_inline_keys(const Node& arguments, Diagnostics& diagnostics) {
  for (const Node& child : arguments.children()) {
    if (contains(kConfigKeys, child.key())) continue;
    if (const auto meant = closest_match(child.key(), kConfigKeys);
        meant && edit_distance(child.key(), *meant) == 1) {
      diagnostics.error_at_key(
          child, cat("unknown key '", child.key(), "'", did_you_mean(child.key(), kConfigKeys)));
    }
  }
}

/// Fields of upstream's MoEConfig.
const std::vector<std::string> kMoEKeys = {"n_routed_experts",
                                           "n_shared_experts",
                                           "n_activated_experts",
                                           "n_expert_groups",
                                           "n_limited_groups",
                                           "train_gate",
                                           "gate_bias_update_factor",
                                           "aux_loss_coeff",
                                           "score_func",
                                           "route_scale",
                                           "dim",
                                           "inter_dim",
                                           "moe_inter_dim",
                                           "norm_topk_prob",
                                           "router_bias",
                                           "expert_bias",
                                           "expert_activation",
                                           "activation_alpha",
                                           "activation_limit",
                                           "swiglu_limit",
                                           "apply_router_weight_after_down",
                                           "softmax_before_topk",
                                           "router_weight_uses_score_correction_bias",
                                           "router_weights_fp32",
                                           "dtype",
                                           "gate_dtype",
                                           "shared_expert_gate",
                                           "shared_expert_inter_dim",
                                           "shared_expert_activation",
                                           "force_e_score_correction_bias",
                                           "moe_latent_size",
                                           "enable_routing_replay"};

/// Reads `model.moe_overrides`, which becomes a part of the configuration that the family reads.
void read_moe_overrides(const Node& overrides, ModelRecipe& plan, Diagnostics& diagnostics) {
  if (overrides.is_null()) return;
  if (!overrides.is_mapping()) {
    diagnostics.error(overrides, cat("expected a mapping, found ", overrides.describe()));
    return;
  }
  Json changes = Json::object();
  for (const Node& child : overrides.children()) {
    if (!contains(kMoEKeys, child.key())) {
      diagnostics.error_at_key(
          child, cat("unknown key '", child.key(), "'", did_you_mean(child.key(), kMoEKeys)));
    } else if (child.key() != "gate_bias_update_factor") {
      diagnostics.unsupported(child,
                              "of moe_overrides only gate_bias_update_factor is in this version");
    } else if (const auto factor = config::read_value<double>(child, diagnostics)) {
      if (*factor < 0) {
        diagnostics.error(child, cat("must be at least 0, not ", *factor));
      } else {
        changes[child.key()] = *factor;
      }
    }
  }
  if (changes.size() > 0 && plan.hf_config.is_object()) plan.hf_config["moe_overrides"] = changes;
}

/// The architecture whose configuration class has this name, which is one of the targets.
std::string architecture_of(std::string_view config_class) {
  const std::vector<models::FamilyFacts> families = models::family_facts();
  const auto family = std::ranges::find(families, config_class, &models::FamilyFacts::config_class);
  AM_CHECK(family != families.end(), config_class, " is no family's");
  return std::string(family->architecture);
}

/// Reads `model.config`: the source of the configuration and the changes that the recipe makes to
/// it.
void read_config_node(const Node& config, ModelRecipe& plan, std::vector<Node>& changes,
                      Diagnostics& diagnostics) {
  if (config.is_string()) {
    plan.source = *config.string_value();
    return;
  }
  if (!config.is_mapping()) {
    diagnostics.error(
        config, cat("expected a folder, a model's name or a mapping, found ", config.describe()));
    return;
  }
  if (!config::has_target(config)) {
    for (const Node& child : config.children()) changes.push_back(child);
    return;
  }
  const auto target = config::split_target(config, diagnostics);
  if (!target) return;
  const auto registry = model_config_targets();
  const ModelConfigTarget* form = registry.resolve_maker(*target, diagnostics);
  const bool is_foreign_folder = form == nullptr && target->name.ends_with(".from_pretrained");
  if (form == nullptr && !is_foreign_folder) return;
  if (form != nullptr && *form == ModelConfigTarget::kInline) {
    // "transformers.Qwen3Config" -> architectures Qwen3ForCausalLM unless the keys say otherwise.
    plan.hf_config = config::to_json(target->arguments);
    check_inline_keys(target->arguments, diagnostics);
    if (!plan.hf_config.contains("architectures")) {
      const std::string name = target->name.substr(target->name.rfind('.') + 1);
      plan.hf_config["architectures"] = Json(Json::Array{Json(architecture_of(name))});
    }
    return;
  }
  for (const Node& child : target->arguments.children()) {
    const bool is_source =
        child.key() == "pretrained_model_name_or_path" || child.key() == "name_or_path";
    if (is_source) {
      plan.source = config::read_value<std::string>(child, diagnostics).value_or("");
    } else if (child.key() == "revision" || child.key() == "cache_dir") {
      auto& of_model = child.key() == "revision" ? plan.section.revision : plan.section.cache_dir;
      const auto own = config::read_value<std::string>(child, diagnostics);
      if (!of_model) of_model = own;
    } else if (child.key() == "trust_remote_code") {
      config::read_value<bool>(child, diagnostics);
      diagnostics.warning_at_key(child,
                                 "'trust_remote_code' has no effect here: no code is ever "
                                 "loaded");
    } else if (child.key() == "torch_dtype") {
      diagnostics.warning_at_key(child,
                                 "'torch_dtype' has no effect here: the model section says "
                                 "it (model.torch_dtype)");
    } else {
      changes.push_back(child);
    }
  }
}

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
void check_idle_change(const Node& change, Diagnostics& diagnostics) {
  const std::string& key = change.key();
  if (key.starts_with("kda_")) {
    check_kda_key(change, diagnostics);
  } else if (key == "num_labels" || key == "use_cache") {
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
    if (!contains(of_part, child.key())) {
      diagnostics.unknown_key(
          child, cat("unknown key '", child.key(), "': no key of ", change.key(),
                     " in the model's config.json", did_you_mean(child.key(), of_part)));
    }
    value[child.key()] = config::to_json(child);
  }
}

void apply_changes(const std::vector<Node>& changes, ModelRecipe& plan, Diagnostics& diagnostics) {
  std::vector<std::string> known = kConfigKeys;
  if (!plan.hf_config.is_object() ||
      plan.hf_config.get("model_type", "").starts_with("kimi_linear")) {
    known.insert(known.end(), kKimiKeys.begin(), kKimiKeys.end());
  }
  if (plan.hf_config.is_object()) {
    for (const auto& [key, value] : plan.hf_config.as_object()) known.push_back(key);
  }
  for (const Node& child : changes) {
    if (!contains(known, child.key())) {
      std::vector<std::string> candidates = known;
      for_each_field<ModelSection>([&](const auto& field) { candidates.push_back(field.name); });
      const bool is_distributed =
          contains({"tp_size", "pp_size", "cp_size", "ep_size", "dp_size", "dp_replicate_size"},
                   child.key());
      const std::string hint = is_distributed ? cat("; the key is distributed.", child.key())
                                              : did_you_mean(child.key(), candidates);
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
    if (plan.hf_config.is_object()) set_config_key(plan.hf_config, child, known, diagnostics);
  }
  for (const Node& child : changes) {
    if (child.key() == "num_nextn_predict_layers" || child.key().starts_with("mtp_")) {
      check_next_tokens(child, plan, diagnostics);
    }
  }
}

/// Whether `config` of the model section is absent or empty, or its path is.
bool names_no_model(const Node* config) {
  if (config == nullptr || config->is_null() || config->string_value() == "") return true;
  const Node* path = config->find("pretrained_model_name_or_path");
  return path != nullptr && path->string_value() == "";
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

/// Warns of changes that no part of the model reads: another family's keys, mostly.
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
  const Json& config = plan.hf_config;
  const bool is_buildable = config.is_object() && models::find_family(config).is_known &&
                            models::check_config(config).empty();
  if (!is_buildable) return;
  std::vector<std::string> keys;
  for (const Node& child : changes) {
    const Json* value = config.find(child.key());
    if (value == nullptr) continue;  // refused
    if (value->is_int() && value->as_int() > kWildSize) return;
    const bool is_known_elsewhere = contains(elsewhere, child.key()) ||
                                    child.key().starts_with("kda_") ||
                                    child.key().starts_with("mtp_");
    if (!is_known_elsewhere) keys.push_back(child.key());
  }
  if (keys.empty()) return;
  const std::vector<std::string> unread = unread_keys(config, keys);
  for (const Node& child : changes) {
    if (child.key() == "rope_theta" && has_theta_elsewhere(config)) {
      diagnostics.warning_at_key(
          child,
          "'rope_theta' has no effect: the configuration's rope_parameters has one, which counts");
    } else if (contains(unread, child.key())) {
      diagnostics.warning_at_key(child,
                                 cat("'", child.key(), "' has no effect on training: this ",
                                     config.get("model_type", "model"), " does not read it"));
    }
  }
}

void find_source(const Node& place, ModelRecipe& plan, Diagnostics& diagnostics) {
  plan.source_node = place;
  hub::Lookup lookup;
  try {
    lookup = hub::find_model(plan.source, plan.section.cache_dir, plan.section.revision);
  } catch (const UserError& error) {
    diagnostics.error(place, error.what());
    return;
  }
  if (lookup.folder.empty()) {
    plan.looked_for = looked_for_text(place, diagnostics);
    if (lookup.is_hub_name) {
      diagnostics.note(place, cat("'", plan.source, "' is not in the local Hugging Face cache (",
                                  hub::cache_folder(plan.section.cache_dir),
                                  "): nothing about the model could be checked", plan.looked_for));
    } else {
      diagnostics.error(place, cat("no such folder: ", plan.source, plan.looked_for));
    }
    return;
  }
  plan.folder = lookup.folder;
  const std::string path = path_join(plan.folder, "config.json");
  if (!path_exists(path)) {
    diagnostics.error(place, cat("there is no config.json in ", plan.folder,
                                 checkpoint::what_it_is_instead(plan.folder)));
    return;
  }
  try {
    plan.hf_config = Json::parse_file(path);
  } catch (const InputError& error) {
    diagnostics.error(place, error.what());
  }
}

void read_dtype(const Node& node, ModelRecipe& plan, Diagnostics& diagnostics) {
  const char* key = plan.section.dtype ? "dtype" : "torch_dtype";
  const std::string name =
      plan.section.dtype ? *plan.section.dtype : plan.section.torch_dtype.value_or("auto");
  if (to_lower(name) == "auto") {
    if (plan.is_from_config) plan.dtype = at::kBFloat16;
    return;
  }
  plan.dtype = tensor::parse_dtype(name);
  const bool is_float =
      plan.dtype && c10::isFloatingType(*plan.dtype) && c10::elementSize(*plan.dtype) >= 2;
  if (!is_float) {
    diagnostics.error(*node.find(key), cat("unknown dtype '", name,
                                           "'; use auto, float32, bfloat16, float16 or float64"));
    plan.dtype.reset();
  }
}

}  // namespace

ModelRecipe read_model(const Node& section, Diagnostics& diagnostics) {
  ModelRecipe plan;
  plan.node = section;
  const auto target = config::split_target(section, diagnostics);
  if (!target) return plan;
  const auto registry = model_targets();
  const ModelTarget* kind = registry.resolve_maker(*target, diagnostics);
  // The keys of a class that is known but not built are read all the same.
  if (kind == nullptr && !registry.find(target->name)) return plan;
  if (kind != nullptr && *kind == ModelTarget::kGpt2Builder) {
    read_gpt2_builder(*target, plan, diagnostics);
    return plan;
  }
  plan.is_from_config =
      kind != nullptr ? *kind == ModelTarget::kFromConfig : target->name.ends_with(".from_config");

  Node own = target->arguments;
  std::vector<Node> changes;
  std::vector<std::string> fields;
  for_each_field<ModelSection>([&](const auto& field) { fields.emplace_back(field.name); });
  for (const Node& child : target->arguments.children()) {
    if (contains(fields, child.key())) continue;
    own.erase(child.key());
    if (contains({"config", "backend", "moe_overrides"}, child.key())) continue;
    if (!child.is_deleted()) changes.push_back(child);
  }
  plan.section = config::bind<ModelSection>(own, diagnostics);
  plan.source = plan.section.pretrained_model_name_or_path.value_or("");
  if (const Node* backend = target->arguments.find("backend")) {
    read_backend(*backend, plan, diagnostics);
  }
  const Node* config = target->arguments.find("config");
  if (config != nullptr && !config->is_null()) {
    read_config_node(*config, plan, changes, diagnostics);
  }
  if (!plan.source.empty()) {
    const Node* place = target->arguments.find("pretrained_model_name_or_path");
    if (config != nullptr) {
      if (const Node* path = config->find("pretrained_model_name_or_path")) place = path;
      if (config->is_string()) place = config;
    }
    find_source(place != nullptr ? *place : section, plan, diagnostics);
  } else if (plan.hf_config.is_null() && names_no_model(config)) {
    const char* key = plan.is_from_config ? "config" : "pretrained_model_name_or_path";
    diagnostics.missing(section, key, cat("missing key '", key, "': which model"));
  }
  if (plan.source.empty() && plan.is_from_config && !plan.draws_weights()) {
    diagnostics.error(
        *target->arguments.find("load_base_model"),
        "load_base_model: true needs a config from a folder or the hub, whose weights "
        "are read");
  }
  apply_changes(changes, plan, diagnostics);
  if (const Node* overrides = target->arguments.find("moe_overrides")) {
    read_moe_overrides(*overrides, plan, diagnostics);
  }
  warn_of_unread_changes(changes, plan, diagnostics);
  read_dtype(section, plan, diagnostics);
  return plan;
}

int64_t vocabulary_of(const ModelRecipe& model) {
  const Json& config = model.hf_config;
  if (!config.is_object()) return 0;
  const Json* text = config.find("text_config");
  const Json& sizes = text != nullptr && text->is_object() ? *text : config;
  const Json* size = sizes.find("vocab_size");
  return size != nullptr && size->is_int() ? size->as_int() : 0;
}

}  // namespace automodel::recipes

#include <algorithm>

#include "config/bind.h"
#include "core/file.h"
#include "hub/cache.h"
#include "recipes/recipe.h"
#include "recipes/recipe_paths.h"
#include "recipes/targets.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// Keys of Hugging Face configurations that recipes change, known even when no config.json is here.
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
                                              "output_router_logits",
                                              "attn_config",
                                              "quantization_config",
                                              "layer_norm_epsilon",
                                              "resid_pdrop",
                                              "embd_pdrop",
                                              "attn_pdrop",
                                              "canvas_length",
                                              "self_conditioning",
                                              "freeze_router"};

/// Keys of upstream's BackendConfig: they choose kernels of other libraries.
const std::vector<std::string> kBackendKeys = {"_target_",
                                               "attn",
                                               "linear",
                                               "rms_norm",
                                               "rope",
                                               "rope_fusion",
                                               "experts",
                                               "dispatcher",
                                               "dispatcher_num_sms",
                                               "dispatcher_share_token_dispatcher",
                                               "dispatcher_async_dispatch",
                                               "mok",
                                               "fake_balanced_gate",
                                               "fake_gate_noise",
                                               "enable_hf_state_dict_adapter",
                                               "enable_fsdp_optimizations",
                                               "te_fp8",
                                               "gate_precision",
                                               "compile_attn",
                                               "cuda_graph",
                                               "enable_deepep",
                                               "sparse_attn",
                                               "te_grouped_tensor",
                                               "compile_situ",
                                               "compile_norm",
                                               "compile_router_weight",
                                               "shared_expert_overlap",
                                               "benchmark_static_routing",
                                               "dispatcher_hybridep_permute_fusion",
                                               "dispatcher_hybridep_compact_routing",
                                               "dispatcher_hybridep_num_sms_preprocessing",
                                               "dispatcher_hybridep_num_blocks_permute",
                                               "dispatcher_hybridep_num_blocks_unpermute"};

bool contains(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

void read_backend(const Node& backend, ModelPlan& plan, Diagnostics& diagnostics) {
  if (!backend.is_mapping()) {
    if (!backend.is_null()) {
      diagnostics.error(backend, cat("expected a mapping, found ", backend.describe()));
    }
    return;
  }
  for (const Node& child : backend.children()) {
    if (!contains(kBackendKeys, child.key())) {
      diagnostics.error_at_key(
          child, cat("unknown key '", child.key(), "'", did_you_mean(child.key(), kBackendKeys)));
    }
  }
  if (backend.has("te_fp8")) {
    diagnostics.unsupported(*backend.find("te_fp8"), "fp8 is not in this version");
  }
  const auto read = [&](const char* key, auto otherwise) {
    const Node* value = backend.find(key);
    if (value == nullptr || value->is_null()) return otherwise;
    return config::read_value<decltype(otherwise)>(*value, diagnostics).value_or(otherwise);
  };
  plan.enables_fsdp_optimizations = read("enable_fsdp_optimizations", false);
  plan.has_fake_balanced_gate = read("fake_balanced_gate", false);
  if (read("fake_gate_noise", 0.0) != 0) {
    diagnostics.unsupported(*backend.find("fake_gate_noise"),
                            "noise on a balanced gate is not in this version");
  }
  if (read("benchmark_static_routing", false) && !plan.has_fake_balanced_gate) {
    diagnostics.error(*backend.find("benchmark_static_routing"),
                      "benchmark_static_routing needs fake_balanced_gate: true");
  }
}

/// The configuration's source and what the recipe changes in it, from `model.config`.
void read_config_node(const Node& config, ModelPlan& plan, std::vector<Node>& changes,
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
  if (form == nullptr) return;
  if (*form == ModelConfigTarget::kInline) {
    // "transformers.Qwen3Config" -> architectures Qwen3ForCausalLM unless the keys say otherwise.
    plan.hf_config = config::to_json(target->arguments);
    std::string name = target->name.substr(target->name.rfind('.') + 1);
    name = name.substr(0, name.size() - std::string("Config").size());
    if (name == "Gemma3Text") name = "Gemma3";
    if (!plan.hf_config.contains("architectures")) {
      plan.hf_config["architectures"] =
          Json(Json::Array{Json(name == "GPT2" ? "GPT2LMHeadModel" : name + "ForCausalLM")});
    }
    return;
  }
  for (const Node& child : target->arguments.children()) {
    const bool is_source =
        child.key() == "pretrained_model_name_or_path" || child.key() == "name_or_path";
    if (is_source) {
      plan.source = child.string_value().value_or("");
    } else if (child.key() != "trust_remote_code" && child.key() != "torch_dtype" &&
               child.key() != "revision" && child.key() != "cache_dir") {
      changes.push_back(child);
    }
  }
}

void apply_changes(const std::vector<Node>& changes, ModelPlan& plan, Diagnostics& diagnostics) {
  std::vector<std::string> known = kConfigKeys;
  if (plan.hf_config.is_object()) {
    for (const auto& [key, value] : plan.hf_config.as_object()) known.push_back(key);
  }
  for (const Node& child : changes) {
    if (!contains(known, child.key())) {
      std::vector<std::string> candidates = known;
      for_each_field<ModelSection>([&](const auto& field) { candidates.push_back(field.name); });
      diagnostics.error_at_key(child, cat("unknown key '", child.key(),
                                          "': neither a model option nor a key of its config.json",
                                          did_you_mean(child.key(), candidates)));
      continue;
    }
    if (plan.hf_config.is_object()) plan.hf_config[child.key()] = config::to_json(child);
  }
}

void find_source(const Node& place, ModelPlan& plan, Diagnostics& diagnostics) {
  const hub::Lookup lookup =
      hub::find_model(plan.source, plan.section.cache_dir, plan.section.revision);
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
    diagnostics.error(place, cat("there is no config.json in ", plan.folder));
    return;
  }
  try {
    plan.hf_config = Json::parse_file(path);
  } catch (const InputError& error) {
    diagnostics.error(place, error.what());
  }
}

void read_dtype(const Node& node, ModelPlan& plan, Diagnostics& diagnostics) {
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

ModelPlan read_model(const Node& root, Diagnostics& diagnostics) {
  ModelPlan plan;
  const Node* node = root.find("model");
  if (node == nullptr || node->is_null()) {
    diagnostics.missing(root, "model", "missing key 'model': what to train");
    return plan;
  }
  plan.node = *node;
  const auto target = config::split_target(*node, diagnostics);
  if (!target) return plan;
  const auto registry = model_targets();
  const ModelTarget* kind = registry.resolve_maker(*target, diagnostics);
  if (kind == nullptr) return plan;
  plan.is_from_config = *kind == ModelTarget::kFromConfig;

  Node own = target->arguments;
  std::vector<Node> changes;
  std::vector<std::string> fields;
  for_each_field<ModelSection>([&](const auto& field) { fields.emplace_back(field.name); });
  for (const Node& child : target->arguments.children()) {
    if (contains(fields, child.key())) continue;
    own.erase(child.key());
    if (child.key() == "config" || child.key() == "backend") continue;
    changes.push_back(child);
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
    find_source(place != nullptr ? *place : *node, plan, diagnostics);
  } else if (plan.hf_config.is_null() && (config == nullptr || config->is_null())) {
    const char* key = plan.is_from_config ? "config" : "pretrained_model_name_or_path";
    diagnostics.missing(*node, key, cat("missing key '", key, "': which model"));
  }
  apply_changes(changes, plan, diagnostics);
  read_dtype(*node, plan, diagnostics);
  return plan;
}

}  // namespace automodel::recipes

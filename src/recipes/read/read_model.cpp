#include "recipes/read/read_model.h"

#include <algorithm>

#include "checkpoint/hf_folder.h"
#include "config/bind.h"
#include "core/error.h"
#include "core/file.h"
#include "core/is_one_of.h"
#include "hub/cache.h"
#include "models/catalog.h"
#include "models/facts.h"
#include "recipes/read/backend_section.h"
#include "recipes/read/classifier_labels.h"
#include "recipes/read/config_changes.h"
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
    if (!is_one_of(kMoEKeys, child.key())) {
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
    for (const Node& child : config.children()) {
      if (!is_label_key(child.key())) changes.push_back(child);
    }
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
    for (const char* key : {"num_labels", "id2label", "label2id", "problem_type"}) {
      plan.hf_config.erase(key);
    }
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
    } else if (!is_label_key(child.key())) {
      changes.push_back(child);
    }
  }
}

/// Whether `config` of the model section is absent or empty, or its path is.
bool names_no_model(const Node* config) {
  if (config == nullptr || config->is_null() || config->string_value() == "") return true;
  const Node* path = config->find("pretrained_model_name_or_path");
  return path != nullptr && path->string_value() == "";
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
    if (is_plain_file(plan.source)) {
      diagnostics.error(place,
                        cat("'", plan.source, "' is a file; the folder of a model is needed"));
    } else if (lookup.is_hub_name) {
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

/// Checks that the class of a language model is one of those with an encoder where the target is.
void check_stacks(const Node& target_name, const ModelRecipe& plan, Diagnostics& diagnostics) {
  const models::FamilyCheck family =
      plan.hf_config.is_object() ? models::find_family(plan.hf_config) : models::FamilyCheck{};
  if (!family.is_known || models::reads_sources(plan.hf_config) == plan.reads_sources) return;
  diagnostics.error(target_name,
                    plan.reads_sources
                        ? cat("a ", family.architecture,
                              " has no encoder: nemo_automodel.NeMoAutoModelForCausalLM trains it")
                        : cat("a ", family.architecture,
                              " has an encoder and a decoder: "
                              "nemo_automodel.NeMoAutoModelForSeq2SeqLM trains it, "
                              "on sources and targets (make_seq2seq_dataset)"));
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
  using Form = ModelTarget::Form;
  if (kind != nullptr && kind->form == Form::kGpt2Builder) {
    plan.has_known_class = true;
    read_gpt2_builder(*target, plan, diagnostics);
    return plan;
  }
  plan.is_from_config =
      kind != nullptr ? kind->form == Form::kFromConfig : target->name.ends_with(".from_config");
  plan.has_known_class = kind != nullptr;
  plan.classifies = kind != nullptr && kind->classifies;
  plan.reads_sources = kind != nullptr && kind->reads_sources;
  plan.makes_embeddings = kind != nullptr && kind->makes_embeddings;

  Node own = target->arguments;
  Node of_encoder = own;
  std::vector<std::string> encoder_fields;
  if (plan.makes_embeddings) {
    for_each_field<BiEncoderSection>(
        [&](const auto& field) { encoder_fields.emplace_back(field.name); });
  }
  std::vector<Node> changes;
  std::vector<std::string> fields;
  for_each_field<ModelSection>([&](const auto& field) { fields.emplace_back(field.name); });
  for (const Node& child : target->arguments.children()) {
    if (!is_one_of(encoder_fields, child.key())) of_encoder.erase(child.key());
    if (is_one_of(fields, child.key())) continue;
    own.erase(child.key());
    if (is_one_of(encoder_fields, child.key())) continue;
    if (is_one_of({"config", "backend", "moe_overrides"}, child.key())) continue;
    if (is_label_key(child.key())) continue;
    if (!child.is_deleted()) changes.push_back(child);
  }
  plan.section = config::bind<ModelSection>(own, diagnostics);
  if (plan.makes_embeddings) {
    plan.encoder = config::bind<BiEncoderSection>(of_encoder, diagnostics);
  }
  plan.source = plan.section.pretrained_model_name_or_path.value_or("");
  if (const Node* backend = target->arguments.find("backend")) {
    read_backend(*backend, plan, diagnostics);
  }
  const Node* config = target->arguments.find("config");
  if (config != nullptr && !config->is_null()) {
    read_config_node(*config, plan, changes, diagnostics);
  }
  const Node* beside = target->arguments.find("pretrained_model_name_or_path");
  const bool has_config = config != nullptr && !config->is_null();
  if (plan.is_from_config && has_config && beside != nullptr && !beside->is_null()) {
    diagnostics.warning_at_key(*beside,
                               "'pretrained_model_name_or_path' has no effect beside config: "
                               "weights are drawn, and from_pretrained is what reads them");
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
  } else if (plan.hf_config.is_null() && config->is_mapping() && !config::has_target(*config)) {
    diagnostics.error(*config,
                      "these keys change a model's configuration, and no model is named; a "
                      "`_target_` such as transformers.LlamaConfig makes one of them alone");
  }
  if (plan.source.empty() && plan.is_from_config && !plan.draws_weights()) {
    diagnostics.error(
        *target->arguments.find("load_base_model"),
        "load_base_model: true needs a config from a folder or the hub, whose weights "
        "are read");
  }
  apply_config_changes(changes, plan, diagnostics);
  if (plan.classifies) {
    make_classifier(target->name_node, target->arguments, plan, diagnostics);
  } else if (plan.makes_embeddings) {
    make_embedder(target->name_node, target->arguments, plan, diagnostics);
  } else if (kind != nullptr) {
    check_language_model(target->name_node, target->arguments, plan, diagnostics);
    check_stacks(target->name_node, plan, diagnostics);
  }
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

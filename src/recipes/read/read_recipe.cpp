#include "recipes/read/read_recipe.h"

#include <algorithm>

#include "config/bind.h"
#include "config/other_names.h"
#include "config/schema.h"
#include "core/file.h"
#include "core/is_one_of.h"
#include "peft/adapter_file.h"
#include "recipes/read/check_sources.h"
#include "recipes/read/classifier_labels.h"
#include "recipes/read/dataset_recipe.h"
#include "recipes/read/inactive_sections.h"
#include "recipes/read/nvfsdp_names.h"
#include "recipes/read/read_benchmark.h"
#include "recipes/read/read_data.h"
#include "recipes/read/read_distillation.h"
#include "recipes/read/read_distributed.h"
#include "recipes/read/read_dllm.h"
#include "recipes/read/read_model.h"
#include "recipes/read/read_section.h"
#include "recipes/read/read_trackers.h"
#include "recipes/read/recipe.h"
#include "recipes/read/recipe_paths.h"
#include "recipes/read/recipe_schema.h"
#include "recipes/read/section_targets.h"
#include "recipes/read/targets_distributed.h"
#include "recipes/read/targets_optimizer.h"
#include "recipes/read/targets_simple.h"
#include "training/signals.h"

namespace automodel::recipes {

namespace {

constexpr std::string_view kBenchmark = "BenchmarkingRecipeForNextTokenPrediction";

using config::Diagnostics;
using config::Node;

const std::vector<std::string> kSections = {"recipe",
                                            "seed",
                                            "step_scheduler",
                                            "dist_env",
                                            "distributed",
                                            "model",
                                            "dataset",
                                            "validation_dataset",
                                            "dataloader",
                                            "validation_dataloader",
                                            "packed_sequence",
                                            "loss_fn",
                                            "optimizer",
                                            "lr_scheduler",
                                            "clip_grad_norm",
                                            "checkpoint",
                                            "mfu",
                                            "stop_on_non_finite",
                                            "float32_matmul_precision",
                                            "moe_metrics",
                                            "tensorboard",
                                            "mlflow",
                                            "wandb",
                                            "dllm",
                                            "peft",
                                            "quantization",
                                            "qat",
                                            "freeze_config",
                                            "embedding_row_repair",
                                            "tool_call_eval",
                                            "early_stopping",
                                            "neftune",
                                            "temperature"};

/// The recipe class that a recipe names.
struct RecipeKind {
  std::string class_name;      ///< "" when it is not in this version
  bool has_known_keys = true;  ///< false: only upstream knows its sections and keys
};

/// Whether a hint may lead to a key: its section is one of any training, or of this recipe's
/// `sections`.
bool is_hinted_at(const std::string& path, const std::vector<std::string>& sections) {
  static const std::vector<std::string> usual = {
      "step_scheduler",  "distributed", "model",        "dataset",        "dataloader",
      "packed_sequence", "optimizer",   "lr_scheduler", "clip_grad_norm", "peft",
      "quantization",    "checkpoint",  "neftune",      "early_stopping", "freeze_config"};
  const std::string section = path.substr(0, path.find('.'));
  return path.find(".tokenizer.") == std::string::npos &&
         (is_one_of(usual, section) || is_one_of(sections, section));
}

/// Leaves out keys of validation data and of a teacher whose like is there for training.
void keep_training(std::vector<std::string>& paths) {
  const std::vector<std::string> all = paths;
  std::erase_if(paths, [&](const std::string& path) {
    for (const std::string_view before : {"validation_", "teacher_"}) {
      if (!path.starts_with(before)) continue;
      return std::ranges::find(all, path.substr(before.size())) != all.end();
    }
    return false;
  });
}

/// "; did you mean 'step_scheduler.max_steps'?": the section or the keys of sections that have this
/// name, or the name of what other programs mean by it; "" for none, for more than a few, and where
/// the key is one of another class of its own section.
std::string hint_in_recipe(const Node& node, const std::vector<std::string>& sections) {
  constexpr size_t kMostNamed = 4;
  static const std::vector<std::string> of_anything = {"name",   "args", "path", "folder",
                                                       "resume", "r",    "rank", "data"};
  const std::string& key = node.key();
  if (is_one_of(of_anything, key)) return "";
  static const Json schema = recipe_schema();
  for (const std::string_view name : {std::string_view(key), config::name_here(key)}) {
    if (name.empty()) continue;
    std::vector<std::string> found = config::keys_ending_with(schema, name);
    if (is_one_of(found, path_in_schema(node.path()))) return "";
    if (schema.at("properties").contains(name)) {
      if (name == key) return cat("; '", key, "' stands at the top of a recipe");
      found = {std::string(name)};
    } else {
      std::erase_if(found, [&](const std::string& path) { return !is_hinted_at(path, sections); });
    }
    keep_training(found);
    if (!found.empty() && found.size() <= kMostNamed) return config::hint_of_meaning(key, found);
  }
  return "";
}

void check_sections(const Node& root, const RecipeKind& kind, Diagnostics& diagnostics) {
  std::vector<std::string> known = kSections;
  for (std::string& name : inactive_section_names()) known.push_back(std::move(name));
  const std::vector<std::string>& of_distillation = distillation_keys();
  known.insert(known.end(), of_distillation.begin(), of_distillation.end());
  for (const Node& child : root.children()) {
    const std::string& key = child.key();
    if (key.starts_with("_") || key.starts_with("validation_dataset_")) continue;
    if (child.is_deleted()) continue;
    if (std::find(kSections.begin(), kSections.end(), key) != kSections.end()) continue;
    if (std::ranges::find(of_distillation, key) != of_distillation.end()) continue;
    if (key == "benchmark" && kind.class_name == kBenchmark) continue;
    if (key == "tokenizer" && kind.class_name == kBiEncoderRecipe) continue;
    if (check_inactive_section(child, diagnostics)) continue;
    const std::string hint = config::hint_for_key(child, known, diagnostics);
    diagnostics.unknown_key(child, cat("unknown section '", key, "'", hint));
  }
}

/// True for a name that upstream may have and this version does not know, such as
/// `TrainDFlashRecipe`; false for a misspelt known one.
bool is_foreign_recipe(const std::string& name, const config::TargetNames& registry) {
  constexpr int kSlip = 2;
  if (name.find("Recipe") == std::string::npos || registry.find(name)) return false;
  return std::none_of(registry.infos().begin(), registry.infos().end(), [&](const auto& info) {
    return info.name.starts_with(name) || edit_distance(info.name, name) <= kSlip;
  });
}

/// The recipe that the sections of one without the key `recipe` look like.
std::string likely_recipe(const Node& root) {
  static constexpr std::pair<const char*, const char*> kBySection[] = {
      {"dllm", "DiffusionLMSFTRecipe"},
      {"teacher_model", "KnowledgeDistillationRecipeForNextTokenPrediction"},
      {"kd_loss_fn", "KnowledgeDistillationRecipeForNextTokenPrediction"}};
  for (const auto& [section, recipe] : kBySection) {
    if (root.find(section) != nullptr) return recipe;
  }
  return "TrainFinetuneRecipeForNextTokenPrediction";
}

RecipeKind read_kind(const Node& root, Diagnostics& diagnostics) {
  const Node* node = root.find("recipe");
  const auto registry = recipe_targets();
  if (node == nullptr || node->is_null()) {
    std::vector<std::string> names;
    for (const auto& info : registry.infos()) {
      if (info.unsupported_reason.empty()) names.push_back(info.name);
    }
    std::sort(names.begin(), names.end());
    const std::string likely = likely_recipe(root);
    std::erase(names, likely);
    diagnostics.missing(root, "recipe",
                        cat("missing key 'recipe': which recipe to run; ", likely,
                            " fits these sections, and others are ", join(names, ", ")));
    return {};
  }
  const auto target = config::split_target(*node, diagnostics);
  if (!target) return {};
  const std::string plain = target->name.substr(target->name.rfind('.') + 1);
  if (is_foreign_recipe(plain, registry)) {
    diagnostics.unsupported(target->name_node,
                            cat("recipe '", target->name, "' is not in this version"));
    return {.has_known_keys = false};
  }
  RecipeKind kind;
  if (const auto index = registry.resolve(*target, diagnostics)) {
    kind.class_name = registry.infos()[*index].name;
    kind.has_known_keys = kind.class_name != kMaskedDiffusionRecipe || !is_dllm_mode_foreign(root);
  } else if (registry.find(target->name)) {
    kind.has_known_keys = plain.ends_with("ForNextTokenPrediction");
  }
  return kind;
}

void read_checkpoint(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  recipe.checkpoint = read_section<CheckpointSection>(root, "checkpoint", diagnostics);
  const Node* node = root.find("checkpoint");
  if (node == nullptr || node->is_null()) return;
  const auto reject = [&](const char* key, const char* feature) {
    diagnostics.unsupported(*node->find(key), cat(feature, " is not in this version"));
  };
  CheckpointSection& section = recipe.checkpoint;
  const std::string consolidated = to_lower(section.save_consolidated);
  if (consolidated == "true") {
    section.save_consolidated = "every";
  } else if (consolidated == "false" || consolidated == "final" || consolidated == "every") {
    section.save_consolidated = consolidated;
  } else {
    diagnostics.error(*node->find("save_consolidated"),
                      cat("save_consolidated takes false, final or every, found '",
                          section.save_consolidated, "'"));
  }
  const std::string format = to_lower(section.model_save_format);
  if (format != "safetensors" && format != "torch_save") {
    diagnostics.error(
        *node->find("model_save_format"),
        cat("model_save_format takes safetensors, found '", section.model_save_format, "'"));
  } else if (format == "torch_save" && section.enabled) {
    diagnostics.warning(*node->find("model_save_format"),
                        "torch_save files can run code when loaded: safetensors are written");
  }
  if (section.diffusers_compatible) reject("diffusers_compatible", "the diffusers layout");
  if (section.checkpoint_dir.empty()) {
    diagnostics.error(*node->find("checkpoint_dir"), "expected the name of a folder, found ''");
  }
  if (section.checkpoint_dir.starts_with("msc://")) reject("checkpoint_dir", "cloud storage");
}

/// Returns the recipe with booleans turned into text where upstream accepts either.
Node with_boolean_text(Node root) {
  if (Node* checkpoint = root.find("checkpoint")) {
    if (Node* value = checkpoint->find("save_consolidated")) {
      if (const auto flag = value->bool_value()) {
        Node text = Node::string(*flag ? "every" : "false");
        value->assume_value(std::move(text));
      }
    }
  }
  return root;
}

void read_clip(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  recipe.clip = read_section<ClipSection>(root, "clip_grad_norm", diagnostics);
  if (recipe.clip.norm_type != 2.0) {
    diagnostics.unsupported(*root.find("clip_grad_norm")->find("norm_type"),
                            "clipping by another norm than 2 is not in this version");
  }
  if (recipe.clip.backend && *recipe.clip.backend != "triton" && *recipe.clip.backend != "te") {
    diagnostics.error(*root.find("clip_grad_norm")->find("backend"),
                      cat("backend takes triton or te, found '", *recipe.clip.backend, "'"));
  }
  const Node* multiple = root.find_path("clip_grad_norm.spike_multiple");
  if (multiple != nullptr && !multiple->is_null() && recipe.clip.on_spike == OnSpike::kContinue) {
    diagnostics.warning(*multiple,
                        "spike_multiple has no effect without on_spike: skip or rollback, which "
                        "act on norms above it");
  }
  const Node* rollbacks = root.find_path("clip_grad_norm.max_rollbacks");
  if (rollbacks != nullptr && !rollbacks->is_null() && recipe.clip.on_spike != OnSpike::kRollback) {
    diagnostics.warning(*rollbacks, "max_rollbacks has no effect without on_spike: rollback");
  }
}

void read_peft(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  const Node* node = root.find("peft");
  if (node == nullptr || node->is_null()) return;
  if (config::has_target(*node)) {
    if (const auto target = config::split_target(*node, diagnostics)) {
      peft_targets().resolve(*target, diagnostics);
    }
  }
  recipe.peft = config::bind<peft::PeftConfig>(*node, diagnostics,
                                               {.legacy_keys = {}, .other_keys = {"_target_"}});
  if (!recipe.peft->adapter_name_or_path) return;
  try {
    const auto first = peft::read_adapter_config(*recipe.peft->adapter_name_or_path);
    recipe.peft->rank_pattern = first.rank_pattern;
    recipe.peft->alpha_pattern = first.alpha_pattern;
  } catch (const UserError&) {
    // check_peft reports it.
  }
}

void read_early_stopping(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  const Node* node = root.find("early_stopping");
  if (node == nullptr || node->is_null()) return;
  recipe.early_stopping = config::bind<training::EarlyStoppingConfig>(*node, diagnostics);
}

void read_quantization(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  const Node* node = root.find("quantization");
  if (node == nullptr || node->is_null()) return;
  const auto section = config::bind<QuantizationSection>(
      *node, diagnostics, {.legacy_keys = {}, .other_keys = {"_target_"}});
  check_section_target(*node, diagnostics);
  if (section.load_in_4bit || section.load_in_8bit) {
    recipe.quantization = section;
  } else {
    diagnostics.warning_at_key(
        *node, "'quantization' has no effect: neither load_in_4bit nor load_in_8bit is true");
  }
}

void read_embedding_repair(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  const Node* node = root.find("embedding_row_repair");
  if (node == nullptr || node->is_null()) return;
  const auto section = config::bind<EmbeddingRowRepairSection>(
      *node, diagnostics, {.legacy_keys = {}, .other_keys = {"_target_"}});
  check_section_target(*node, diagnostics);
  if (!section.enabled) return;
  if (recipe.distributed.sizes.pp_size.value_or(1) > 1) {
    diagnostics.error(*node,
                      "embedding_row_repair needs the embedding and the head on one rank: "
                      "it does not go with pp_size > 1");
  }
  if (recipe.model.draws_weights()) {
    diagnostics.warning_at_key(
        *node, "'embedding_row_repair' has no effect: the weights are drawn, not read");
    return;
  }
  if (recipe.peft) {
    diagnostics.warning_at_key(*node,
                               "the adapters' folder does not hold the repaired rows: what loads "
                               "it must repair the base's too");
  }
  recipe.embedding_row_repair = section;
}

/// `neftune: 5` is `neftune: {noise_alpha: 5}`, as upstream.
void read_neftune(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  const Node* node = root.find("neftune");
  if (node == nullptr || node->is_null()) return;
  if (node->is_number()) {
    const auto alpha = config::read_value<double>(*node, diagnostics);
    if (alpha && *alpha < 0) diagnostics.error(*node, cat("must be at least 0, not ", *alpha));
    recipe.neftune = NeftuneSection{alpha.value_or(0)};
    return;
  }
  recipe.neftune = config::bind<NeftuneSection>(*node, diagnostics,
                                                {.legacy_keys = {}, .other_keys = {"_target_"}});
  check_section_target(*node, diagnostics);
}

/// The backend of the `distributed` section, where `dist_env` names none.
void take_distributed_backend(const Node& root, DistEnvSection& section, Diagnostics& diagnostics) {
  const Node* other = root.find_path("distributed.backend");
  if (other == nullptr || !other->is_string()) return;  // check_backend() tells of other kinds
  const Node* own = root.find_path("dist_env.backend");
  const std::string backend = *other->string_value();
  if (own == nullptr || own->is_null()) {
    section.backend = backend;
    diagnostics.add_default("dist_env.backend", Json(backend));
  } else if (to_lower(backend) != to_lower(section.backend)) {
    diagnostics.warning(*other,
                        cat("'backend' has no effect: dist_env.backend says ", section.backend));
  }
}

}  // namespace

Recipe read_recipe(const Node& original, Diagnostics& diagnostics) {
  diagnostics.know_kinds([](const std::string& name) {
    try {
      return import_class_from_path(name).kind;
    } catch (const UserError&) {
      return std::string();
    }
  });
  constexpr int kMostHints = 200;  // all keys are searched for each
  std::vector<std::string> sections;
  for (const Node& child : original.children()) sections.push_back(child.key());
  diagnostics.know_keys([sections, num_asked = 0](const Node& key) mutable {
    return num_asked++ < kMostHints ? hint_in_recipe(key, sections) : std::string();
  });
  Recipe recipe;
  recipe.root = original;
  // Here, so that what is said of these keys later finds their place.
  Node* distributed = recipe.root.find("distributed");
  if (distributed != nullptr && distributed->is_mapping()) {
    take_nvfsdp_names(*distributed, diagnostics);
  }
  Node root = with_retrieval_defaults(with_boolean_text(recipe.root));
  find_paths(root, diagnostics);
  const RecipeKind kind = read_kind(root, diagnostics);
  recipe.class_name = kind.class_name;
  if (!kind.has_known_keys) diagnostics.keys_are_open();
  check_sections(root, kind, diagnostics);
  if (const Node* seed = root.find("seed"); seed != nullptr && !seed->is_null()) {
    recipe.seed = config::read_value<int64_t>(*seed, diagnostics).value_or(recipe.seed);
  } else {
    diagnostics.add_default("seed", recipe.seed);
  }
  if (const Node* stop = root.find("stop_on_non_finite"); stop != nullptr && !stop->is_null()) {
    recipe.stops_on_non_finite = config::read_value<bool>(*stop, diagnostics).value_or(true);
  } else {
    diagnostics.add_default("stop_on_non_finite", recipe.stops_on_non_finite);
  }
  if (const Node* node = root.find("float32_matmul_precision");
      node != nullptr && !node->is_null()) {
    recipe.matmul_precision =
        config::read_value<MatmulPrecision>(*node, diagnostics).value_or(recipe.matmul_precision);
  } else {
    diagnostics.add_default("float32_matmul_precision",
                            std::string(enum_name(recipe.matmul_precision)));
  }
  recipe.step_scheduler =
      read_section<training::StepSchedulerConfig>(root, "step_scheduler", diagnostics);
  try {
    training::parse_signals(recipe.step_scheduler.preemption_signal);
  } catch (const UserError& error) {
    const std::string text = error.what();
    diagnostics.error(*root.find("step_scheduler")->find("preemption_signal"),
                      text.substr(text.find(": ") + 2));
    recipe.step_scheduler.preemption_signal.clear();
  }
  recipe.dist_env = read_section<DistEnvSection>(root, "dist_env", diagnostics);
  take_distributed_backend(root, recipe.dist_env, diagnostics);
  if (const Node* node = root.find("distributed"); node != nullptr && !node->is_null()) {
    recipe.distributed = read_distributed(*node, diagnostics);
  }
  if (const Node* node = root.find("model"); node != nullptr && !node->is_null()) {
    recipe.model = read_model(*node, diagnostics);
  } else {
    diagnostics.missing(root, "model", "missing key 'model': what to train");
  }
  if (kind.class_name == kBenchmark) read_benchmark(root, recipe, diagnostics);
  read_data(root, recipe, diagnostics);
  const bool has_own_loss = is_one_of({kClassificationRecipe, kBiEncoderRecipe}, recipe.class_name);
  if (!has_own_loss) recipe.loss = read_loss(root.find("loss_fn"), diagnostics);
  if (const Node* node = root.find("optimizer"); node != nullptr && !node->is_null()) {
    recipe.optimizer = recipe.class_name == kBiEncoderRecipe
                           ? read_retrieval_optimizer(*node, diagnostics)
                           : read_optimizer(*node, diagnostics);
  } else {
    diagnostics.missing(root, "optimizer", "missing key 'optimizer', e.g. torch.optim.AdamW");
  }
  if (const Node* node = root.find("lr_scheduler"); node != nullptr && !node->is_null()) {
    if (node->has("_target_")) {
      if (const auto target = config::split_target(*node, diagnostics)) {
        lr_scheduler_targets().resolve(*target, diagnostics);
      }
    }
    recipe.lr_scheduler = config::bind<optim::LrSchedulerConfig>(
        *node, diagnostics, {.legacy_keys = {}, .other_keys = {"_target_"}});
  }
  read_clip(root, recipe, diagnostics);
  read_peft(root, recipe, diagnostics);
  check_classification(root, recipe, diagnostics);
  check_sources(root, recipe, diagnostics);
  check_retrieval(root, recipe, diagnostics);
  read_quantization(root, recipe, diagnostics);
  read_early_stopping(root, recipe, diagnostics);
  recipe.qat = read_qat(root, diagnostics);
  if (const Node* node = root.find("freeze_config"); node != nullptr && !node->is_null()) {
    recipe.freeze = config::bind<FreezeSection>(*node, diagnostics);
  }
  read_embedding_repair(root, recipe, diagnostics);
  read_neftune(root, recipe, diagnostics);
  read_checkpoint(root, recipe, diagnostics);
  if (recipe.benchmark) {
    recipe.step_scheduler.preemption_signal.clear();  // there is nothing to save
    recipe.checkpoint.enabled = false;
    recipe.lr_scheduler.reset();
    recipe.validation_datasets.clear();
    recipe.tool_calls.reset();
  }
  recipe.dllm = read_dllm(root, recipe.class_name, diagnostics);
  if (recipe.dllm && recipe.loss.ignore_index != datasets::kIgnoreIndex) {
    recipe.loss.ignore_index = datasets::kIgnoreIndex;
    diagnostics.warning_at_key(
        *root.find("loss_fn")->find("ignore_index"),
        "'ignore_index' has no effect here: diffusion has losses of its own");
  }
  read_distillation(root, recipe, diagnostics);
  recipe.mfu = read_section<MfuSection>(root, "mfu", diagnostics);
  recipe.moe_metrics = read_section<MoeMetricsSection>(root, "moe_metrics", diagnostics);
  if (recipe.moe_metrics.mode != "brief" && recipe.moe_metrics.mode != "detailed") {
    diagnostics.error(*root.find("moe_metrics")->find("mode"),
                      cat("mode takes brief or detailed, found '", recipe.moe_metrics.mode, "'"));
  }
  read_trackers(root, recipe, diagnostics);
  return recipe;
}

}  // namespace automodel::recipes

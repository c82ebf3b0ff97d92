#include <algorithm>

#include "config/bind.h"
#include "core/file.h"
#include "hub/cache.h"
#include "recipes/recipe.h"
#include "recipes/recipe_paths.h"
#include "recipes/targets.h"
#include "training/signals.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// Sections that older recipes carry and nobody reads.
const std::vector<std::pair<std::string, std::string>> kLegacySections = {
    {"rng", "use `seed`"},
    {"autopipeline", "use distributed.pipeline"},
    {"parallelizer", "use distributed"},
    {"distributed_config", "use distributed"},
    {"tokenizer", "use dataset.tokenizer"},
    {"longalign", "nothing reads it"},
    {"ci", "it is for upstream's own tests"},
    {"benchmark", "only the benchmark recipe reads it"},
    {"nvtx", "ranges are in the Chrome trace (--trace)"},
    {"prewarm", "there is nothing to warm up"},
    {"compile", "kernels are fused ahead of time"},
    {"sdpa_method", "the fastest exact kernel is chosen"},
    {"original_hf_config", "nothing reads it"},
};

/// Sections that mean a feature this version does not have. `switch_key`: the section is harmless
/// while this key is false.
struct UnsupportedSection {
  const char* key;
  const char* switch_key;
  const char* feature;
};
constexpr UnsupportedSection kUnsupportedSections[] = {
    {"peft", "", "LoRA (peft) is not in this version"},
    {"quantization", "", "quantized base weights (QLoRA) are not in this version"},
    {"qat", "enabled", "quantization-aware training is not in this version"},
    {"fp8", "enabled", "fp8 is not in this version"},
    {"neftune", "", "NEFTune is not in this version"},
    {"embedding_row_repair", "enabled", "embedding row repair is not in this version"},
    {"tool_call_eval", "", "tool-call evaluation is not in this version"},
    {"domain_mixture", "", "domain mixtures are not in this version"},
    {"freeze_config", "", "freezing parameters is not in this version"},
    {"teacher_model", "", "knowledge distillation is not in this version"},
    {"kd_ratio", "", "knowledge distillation is not in this version"},
    {"kd_loss_fn", "", "knowledge distillation is not in this version"},
    {"teacher_distributed", "", "knowledge distillation is not in this version"},
    {"separate_meshes", "separate_meshes", "knowledge distillation is not in this version"},
    {"offload_teacher_model", "offload_teacher_model",
     "knowledge distillation is not in this version"},
    {"wandb", "enable",
     "Weights & Biases is not in this version; metrics are in training.jsonl; "
     "set wandb.enable: false"},
    {"mlflow", "", "MLflow is not in this version; metrics are in training.jsonl"},
    {"comet", "", "Comet is not in this version; metrics are in training.jsonl"},
    {"skypilot", "",
     "SkyPilot is not in this version; start the recipe with torchrun, srun or "
     "mpirun"},
    {"nemo_run", "",
     "NeMo-Run is not in this version; start the recipe with torchrun, srun or "
     "mpirun"},
    {"slurm", "", "a SLURM section is not in this version; start the recipe with srun"},
};

const std::vector<std::string> kSections = {
    "recipe",          "seed",    "step_scheduler",     "dist_env",     "distributed",
    "model",           "dataset", "validation_dataset", "dataloader",   "validation_dataloader",
    "packed_sequence", "loss_fn", "optimizer",          "lr_scheduler", "clip_grad_norm",
    "checkpoint",      "mfu",     "stop_on_non_finite", "moe_metrics",  "dllm"};

bool is_off(const Node& node, const char* switch_key) {
  if (node.is_null()) return true;
  if (*switch_key == '\0') return false;
  if (node.key() == switch_key) return node.bool_value() == false;
  const Node* flag = node.find(switch_key);
  const bool is_on_by_absence = std::string_view(switch_key) == "enable";
  if (flag == nullptr) return !is_on_by_absence;
  return flag->bool_value() == false;
}

void check_sections(const Node& root, Diagnostics& diagnostics) {
  std::vector<std::string> known = kSections;
  for (const auto& section : kUnsupportedSections) known.emplace_back(section.key);
  for (const Node& child : root.children()) {
    const std::string& key = child.key();
    if (key.starts_with("_") || key.starts_with("validation_dataset_")) continue;
    if (std::find(kSections.begin(), kSections.end(), key) != kSections.end()) continue;
    const auto legacy = std::find_if(kLegacySections.begin(), kLegacySections.end(),
                                     [&](const auto& entry) { return entry.first == key; });
    if (legacy != kLegacySections.end()) {
      diagnostics.warning_at_key(child, cat("'", key, "' has no effect: ", legacy->second));
      continue;
    }
    const auto unsupported =
        std::find_if(std::begin(kUnsupportedSections), std::end(kUnsupportedSections),
                     [&](const auto& entry) { return key == entry.key; });
    if (unsupported != std::end(kUnsupportedSections)) {
      if (!is_off(child, unsupported->switch_key)) {
        diagnostics.unsupported(child, unsupported->feature);
      }
      continue;
    }
    diagnostics.error_at_key(child, cat("unknown section '", key, "'", did_you_mean(key, known)));
  }
}

/// Reads a section into an options struct; absent or null gives the defaults.
template <typename T>
T read_section(const Node& root, const char* key, Diagnostics& diagnostics,
               const config::BindOptions& options = {}) {
  const Node* node = root.find(key);
  return node == nullptr ? T{} : config::bind<T>(*node, diagnostics, options);
}

std::string read_class_name(const Node& root, Diagnostics& diagnostics) {
  const Node* node = root.find("recipe");
  const auto registry = recipe_targets();
  if (node == nullptr || node->is_null()) {
    std::vector<std::string> names;
    for (const auto& info : registry.infos()) {
      if (info.unsupported_reason.empty()) names.push_back(info.name);
    }
    std::sort(names.begin(), names.end());
    diagnostics.missing(root, "recipe",
                        cat("missing key 'recipe': which recipe to run, e.g. ", join(names, ", ")));
    return "";
  }
  const auto target = config::split_target(*node, diagnostics);
  if (!target) return "";
  const auto index = registry.resolve(*target, diagnostics);
  return index ? registry.infos()[*index].name : "";
}

struct LoaderSection {
  datasets::DataloaderConfig config;
  datasets::CollaterConfig collater;
  bool stacks = false;
};

LoaderSection read_loader(const Node& root, const char* key, Diagnostics& diagnostics) {
  LoaderSection section;
  const Node* node = root.find(key);
  if (node == nullptr || node->is_null()) return section;
  section.config = config::bind<datasets::DataloaderConfig>(
      *node, diagnostics,
      {.legacy_keys = {{"timeout", "workers are threads"},
                       {"in_order", "batches always come in order"},
                       {"multiprocessing_context", "workers are threads"},
                       {"worker_init_fn", "workers are threads"},
                       {"dataloader_type", "it is for Megatron data"},
                       {"dataset", "use the top-level section"}},
       .other_keys = {"_target_", "collate_fn"}});
  if (node->has("_target_")) {
    if (const auto target = config::split_target(*node, diagnostics)) {
      dataloader_targets().resolve(*target, diagnostics);
    }
  }
  if (const Node* collate = node->find("collate_fn"); collate != nullptr && !collate->is_null()) {
    const auto target = config::split_target(*collate, diagnostics);
    if (!target) return section;
    const auto registry = collate_targets();
    if (const CollateTarget* collater = registry.resolve_maker(*target, diagnostics)) {
      section.stacks = *collater == CollateTarget::kStack;
      section.collater = config::bind<datasets::CollaterConfig>(target->arguments, diagnostics);
    }
  }
  return section;
}

std::optional<std::string> read_tokenizer(const Node& dataset, Diagnostics& diagnostics) {
  const Node* node = dataset.find("tokenizer");
  if (node == nullptr || node->is_null()) return std::nullopt;
  const Node* path = node;
  if (node->is_mapping()) {
    if (config::has_target(*node)) {
      if (const auto target = config::split_target(*node, diagnostics)) {
        tokenizer_targets().resolve(*target, diagnostics);
      }
    }
    const std::vector<std::string> known = {"_target_",          "pretrained_model_name_or_path",
                                            "trust_remote_code", "use_fast",
                                            "tokenizer_backend", "force_default",
                                            "force_hf",          "padding_side",
                                            "truncation_side",   "add_bos_token",
                                            "add_eos_token",     "revision",
                                            "cache_dir"};
    for (const Node& child : node->children()) {
      if (std::find(known.begin(), known.end(), child.key()) == known.end()) {
        diagnostics.error_at_key(
            child, cat("unknown key '", child.key(), "'", did_you_mean(child.key(), known)));
      }
    }
    for (const char* key : {"add_bos_token", "add_eos_token"}) {
      const Node* flag = node->find(key);
      if (flag != nullptr && flag->bool_value() == true) {
        diagnostics.unsupported(*flag, cat(key, ": true is not in this version"));
      }
    }
    path = node->find("pretrained_model_name_or_path");
    if (path == nullptr || path->is_null()) return std::nullopt;
  }
  const auto name = config::read_value<std::string>(*path, diagnostics);
  if (!name) return std::nullopt;
  const hub::Lookup lookup = hub::find_model(*name, std::nullopt, std::nullopt);
  if (lookup.folder.empty() && lookup.is_hub_name) {
    diagnostics.note(*path, cat("'", *name, "' is not in the local Hugging Face cache",
                                looked_for_text(*path, diagnostics)));
    return "";
  }
  if (lookup.folder.empty()) {
    diagnostics.error(*path, cat("no such folder: ", *name, looked_for_text(*path, diagnostics)));
  }
  return lookup.folder;
}

DatasetSection read_dataset(const Node& node, Diagnostics& diagnostics) {
  DatasetSection section;
  section.key = node.key();
  const std::string prefix = "validation_dataset_";
  section.name = section.key.starts_with(prefix) ? section.key.substr(prefix.size()) : "default";
  section.node = node;
  section.tokenizer_folder = read_tokenizer(node, diagnostics);
  const auto target = config::split_target(node, diagnostics);
  if (!target) return section;
  const auto registry = dataset_targets();
  if (const DatasetMaker* maker = registry.resolve_maker(*target, diagnostics)) {
    section.plan = (*maker)(*target, diagnostics);
  }
  return section;
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
  if (section.is_async) {
    diagnostics.warning(*node->find("is_async"),
                        "background saving is not in this version: the run waits while saving");
  }
  if (section.diffusers_compatible) reject("diffusers_compatible", "the diffusers layout");
  if (section.checkpoint_dir.starts_with("msc://")) reject("checkpoint_dir", "cloud storage");
}

/// A scalar that upstream accepts as text or boolean.
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

void read_data(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  if (const Node* node = root.find("dataset"); node != nullptr && !node->is_null()) {
    recipe.dataset = read_dataset(*node, diagnostics);
  } else {
    diagnostics.missing(root, "dataset", "missing key 'dataset': what to train on");
  }
  for (const Node& child : root.children()) {
    const bool is_set =
        child.key() == "validation_dataset" || child.key().starts_with("validation_dataset_");
    if (is_set && !child.is_null()) {
      recipe.validation_datasets.push_back(read_dataset(child, diagnostics));
    }
  }
  LoaderSection loader = read_loader(root, "dataloader", diagnostics);
  recipe.dataloader = loader.config;
  recipe.collater = loader.collater;
  recipe.stacks = loader.stacks;
  LoaderSection validation = read_loader(root, "validation_dataloader", diagnostics);
  recipe.validation_dataloader = validation.config;
  recipe.validation_collater = validation.collater;
  recipe.validation_stacks = validation.stacks;
  const auto packing = read_section<PackedSequenceSection>(root, "packed_sequence", diagnostics);
  if (packing.packed_sequence_size > 0) {
    diagnostics.unsupported(*root.find("packed_sequence")->find("packed_sequence_size"),
                            "packed sequences are not in this version");
  }
}

void read_clip(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  recipe.clip = read_section<ClipSection>(root, "clip_grad_norm", diagnostics);
  if (recipe.clip.norm_type != 2.0) {
    diagnostics.unsupported(*root.find("clip_grad_norm")->find("norm_type"),
                            "clipping by another norm than 2 is not in this version");
  }
}

}  // namespace

Recipe read_recipe(const Node& original, Diagnostics& diagnostics) {
  Node root = with_boolean_text(original);
  find_paths(root, diagnostics);
  Recipe recipe;
  recipe.root = original;
  check_sections(root, diagnostics);
  recipe.class_name = read_class_name(root, diagnostics);
  if (const Node* seed = root.find("seed"); seed != nullptr && !seed->is_null()) {
    recipe.seed = config::read_value<int64_t>(*seed, diagnostics).value_or(recipe.seed);
  }
  if (const Node* stop = root.find("stop_on_non_finite"); stop != nullptr && !stop->is_null()) {
    recipe.stops_on_non_finite = config::read_value<bool>(*stop, diagnostics).value_or(true);
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
  if (const Node* node = root.find("distributed"); node != nullptr && !node->is_null()) {
    recipe.distributed = read_distributed(*node, diagnostics);
  }
  recipe.model = read_model(root, diagnostics);
  read_data(root, recipe, diagnostics);
  recipe.loss = read_loss(root.find("loss_fn"), diagnostics);
  if (const Node* node = root.find("optimizer"); node != nullptr && !node->is_null()) {
    recipe.optimizer = read_optimizer(*node, diagnostics);
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
  read_checkpoint(root, recipe, diagnostics);
  if (recipe.class_name == "DiffusionGemmaSFTRecipe") {
    recipe.dllm = read_dllm(root, diagnostics);
  } else if (const Node* dllm = root.find("dllm"); dllm != nullptr && !dllm->is_null()) {
    diagnostics.error_at_key(*dllm, "the section 'dllm' is for recipe: DiffusionGemmaSFTRecipe");
  }
  recipe.mfu = read_section<MfuSection>(root, "mfu", diagnostics);
  recipe.moe_metrics = read_section<MoeMetricsSection>(root, "moe_metrics", diagnostics);
  if (recipe.moe_metrics.mode != "brief" && recipe.moe_metrics.mode != "detailed") {
    diagnostics.error(*root.find("moe_metrics")->find("mode"),
                      cat("mode takes brief or detailed, found '", recipe.moe_metrics.mode, "'"));
  }
  return recipe;
}

std::string tokenizer_folder(const Recipe& recipe, const DatasetSection& section) {
  return section.tokenizer_folder.value_or(recipe.model.folder);
}

}  // namespace automodel::recipes

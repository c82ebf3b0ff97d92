#include "recipes/read/read_recipe.h"

#include <algorithm>

#include "config/bind.h"
#include "config/other_names.h"
#include "config/schema.h"
#include "core/file.h"
#include "hub/cache.h"
#include "peft/adapter_file.h"
#include "recipes/read/dataset_recipe.h"
#include "recipes/read/inactive_sections.h"
#include "recipes/read/read_benchmark.h"
#include "recipes/read/read_distillation.h"
#include "recipes/read/read_distributed.h"
#include "recipes/read/read_dllm.h"
#include "recipes/read/read_model.h"
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
                                            "moe_metrics",
                                            "tensorboard",
                                            "mlflow",
                                            "dllm",
                                            "peft",
                                            "quantization",
                                            "embedding_row_repair",
                                            "neftune"};

/// The recipe class that a recipe names.
struct RecipeKind {
  std::string class_name;      ///< "" when it is not in this version
  bool has_known_keys = true;  ///< false: only upstream knows its sections and keys
};

/// What may have been meant by a key that is no section: the keys of that name in sections, e.g.
/// step_scheduler.max_steps, or of what other programs mean by it; else a section of a similar
/// name.
std::string hint_for(const std::string& key, const std::vector<std::string>& sections) {
  constexpr size_t kMostNamed = 4;
  for (const std::string_view name : {std::string_view(key), config::name_here(key)}) {
    if (name.empty() || std::ranges::find(sections, name) != sections.end()) continue;
    const std::vector<std::string> whole = config::keys_ending_with(recipe_schema(), name);
    if (whole.empty() || whole.size() > kMostNamed) continue;
    return cat("; did you mean '", join(whole, "' or '"), "'?");
  }
  return config::hint_for_key(key, sections);
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
    if (check_inactive_section(child, diagnostics)) continue;
    diagnostics.unknown_key(child, cat("unknown section '", key, "'", hint_for(key, known)));
  }
}

/// Reads a section into an options struct; absent or null gives the defaults.
template <typename T>
T read_section(const Node& root, const char* key, Diagnostics& diagnostics,
               const config::BindOptions& options = {}) {
  const Node* node = root.find(key);
  if (node != nullptr) return config::bind<T>(*node, diagnostics, options);
  config::note_defaults(T{}, key, diagnostics);
  return T{};
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

RecipeKind read_kind(const Node& root, Diagnostics& diagnostics) {
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
    const bool trains_text = plain.ends_with("ForNextTokenPrediction") ||
                             plain == "TrainFinetuneRecipeForSequenceClassification";
    kind.has_known_keys = trains_text;
  }
  return kind;
}

struct LoaderSection {
  datasets::DataloaderConfig config;
  datasets::CollaterConfig collater;
  bool stacks = false;
};

LoaderSection read_loader(const Node& root, const char* key, Diagnostics& diagnostics) {
  LoaderSection section;
  const Node* node = root.find(key);
  if (node == nullptr || node->is_null()) {
    config::note_defaults(section.config, key, diagnostics);
    return section;
  }
  section.config = config::bind<datasets::DataloaderConfig>(
      *node, diagnostics,
      {.legacy_keys = {{"timeout", "workers are threads"},
                       {"in_order", "batches always come in order"},
                       {"multiprocessing_context", "workers are threads"},
                       {"worker_init_fn", "workers are threads"},
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

/// Warns of tokenizer options without effect, and refuses those that are not built.
void check_tokenizer_options(const Node& node, const TokenizerSection& section,
                             Diagnostics& diagnostics) {
  const std::pair<const char*, std::optional<bool>> added[] = {
      {"add_bos_token", section.add_bos_token}, {"add_eos_token", section.add_eos_token}};
  for (const auto& [key, is_set] : added) {
    if (is_set != false) continue;
    diagnostics.warning_at_key(
        *node.find(key),
        cat("'", key, ": false' has no effect: what the tokenizer adds of itself stays"));
  }
  const std::pair<const char*, std::optional<std::string>> sides[] = {
      {"padding_side", section.padding_side}, {"truncation_side", section.truncation_side}};
  for (const auto& [key, side] : sides) {
    if (!side || *side == "right") continue;
    if (*side == "left") {
      diagnostics.unsupported(*node.find(key), cat(key, ": left is not in this version"));
    } else {
      diagnostics.error(*node.find(key), cat(key, " takes right or left, found '", *side, "'"));
    }
  }
}

/// Reads what a dataset's `tokenizer` names: name, node and folder. No folder when it names none;
/// "" when the folder is not on this machine.
void read_tokenizer(const Node& dataset, DatasetSection& read, Diagnostics& diagnostics) {
  const Node* node = dataset.find("tokenizer");
  if (node == nullptr || node->is_null()) return;
  TokenizerSection section;
  const Node* path = node;
  if (node->is_mapping()) {
    if (config::has_target(*node)) {
      if (const auto target = config::split_target(*node, diagnostics)) {
        tokenizer_targets().resolve(*target, diagnostics);
      }
    }
    section = config::bind<TokenizerSection>(*node, diagnostics,
                                             {.legacy_keys = {}, .other_keys = {"_target_"}});
    check_tokenizer_options(*node, section, diagnostics);
    read.added_tokens = {section.add_bos_token.value_or(false),
                         section.add_eos_token.value_or(false)};
    path = node->find("pretrained_model_name_or_path");
    if (path == nullptr || path->is_null()) return;
  } else {
    section.pretrained_model_name_or_path = config::read_value<std::string>(*path, diagnostics);
  }
  const auto& name = section.pretrained_model_name_or_path;
  if (!name) return;
  read.tokenizer_name = HubName{*name, section.cache_dir, section.revision};
  read.tokenizer_node = *path;
  const hub::Lookup lookup = hub::find_model(*name, section.cache_dir, section.revision);
  if (lookup.folder.empty() && lookup.is_hub_name) {
    diagnostics.note(*path, cat("'", *name, "' is not in the local Hugging Face cache",
                                looked_for_text(*path, diagnostics)));
    read.tokenizer_folder = "";
    return;
  }
  if (lookup.folder.empty()) {
    diagnostics.error(*path, cat("no such folder: ", *name, looked_for_text(*path, diagnostics)));
  }
  read.tokenizer_folder = lookup.folder;
}

DatasetSection read_dataset(const Node& node, Diagnostics& diagnostics) {
  DatasetSection section;
  section.key = node.key();
  const std::string prefix = "validation_dataset_";
  section.name = section.key.starts_with(prefix) ? section.key.substr(prefix.size()) : "default";
  section.node = node;
  read_tokenizer(node, section, diagnostics);
  const auto target = config::split_target(node, diagnostics);
  if (!target) return section;
  const auto registry = dataset_targets();
  if (const DatasetMaker* maker = registry.resolve_maker(*target, diagnostics)) {
    section.plan = (*maker)(*target, diagnostics);
  }
  if (section.plan != nullptr && !section.plan->takes_special_tokens()) {
    warn_of_idle_tokens(section, diagnostics);
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

/// Refuses packing where the dataset, model or other sections do not allow it.
void refuse_packing(const Node& section, const PackedSequenceSection& packing, const Recipe& recipe,
                    Diagnostics& diagnostics) {
  const Node& size = *section.find("packed_sequence_size");
  if (packing.prepacked) {
    diagnostics.unsupported(*section.find("prepacked"),
                            "data that are packs already are not in this version");
  }
  if (recipe.dataset.plan != nullptr && !recipe.dataset.plan->has_samples_to_pack()) {
    diagnostics.error(size,
                      "this dataset makes whole sequences: there are no samples to pack; "
                      "leave packed_sequence_size out or set it to 0");
  }
  if (recipe.class_name == kBlockDiffusionRecipe || recipe.class_name == kMaskedDiffusionRecipe) {
    diagnostics.unsupported(size, "packed sequences are not in this version of diffusion");
  }
  if (packing.packed_sequence_size % packing.pad_to_multiple_of != 0) {
    diagnostics.error(*section.find("pad_to_multiple_of"),
                      cat("pad_to_multiple_of ", packing.pad_to_multiple_of,
                          " does not divide packed_sequence_size ", packing.packed_sequence_size));
  }
  const Node* keeps_long = section.find("drop_long_samples");
  if (packing.packing_strategy == "thd" && !packing.drop_long_samples) {
    diagnostics.warning_at_key(
        *keeps_long, "'drop_long_samples' has no effect: thd leaves out what fits no pack");
  }
}

void read_packing(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  const auto packing = read_section<PackedSequenceSection>(root, "packed_sequence", diagnostics);
  const Node* node = root.find("packed_sequence");
  if (node == nullptr || !node->is_mapping()) return;
  if (packing.packing_strategy != "thd" && packing.packing_strategy != "neat") {
    diagnostics.error(
        *node->find("packing_strategy"),
        cat("packing_strategy takes thd or neat, found '", packing.packing_strategy, "'",
            did_you_mean(packing.packing_strategy, std::vector<std::string>{"thd", "neat"})));
  }
  if (packing.packed_sequence_size > 0) {
    refuse_packing(*node, packing, recipe, diagnostics);
    const bool is_neat = packing.packing_strategy == "neat";
    recipe.packing = datasets::PackingConfig{
        .pack_size = packing.packed_sequence_size,
        .strategy = is_neat ? datasets::PackingStrategy::kNeat : datasets::PackingStrategy::kThd,
        .max_packs = packing.max_packs,
        .num_threads = packing.num_proc,
        .drops_long_samples = packing.drop_long_samples || !is_neat,
        .pad_to_multiple_of = packing.pad_to_multiple_of};
    return;
  }
  for (const Node& child : node->children()) {
    const bool is_told =
        child.key() == "packed_sequence_size" || child.key() == "split_across_pack";
    if (is_told || child.is_null()) continue;
    diagnostics.warning_at_key(
        child, cat("'", child.key(), "' has no effect while packed_sequence_size is 0"));
  }
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
  read_packing(root, recipe, diagnostics);
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

}  // namespace

Recipe read_recipe(const Node& original, Diagnostics& diagnostics) {
  Node root = with_boolean_text(original);
  find_paths(root, diagnostics);
  Recipe recipe;
  recipe.root = original;
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
  if (const Node* node = root.find("model"); node != nullptr && !node->is_null()) {
    recipe.model = read_model(*node, diagnostics);
  } else {
    diagnostics.missing(root, "model", "missing key 'model': what to train");
  }
  if (kind.class_name == kBenchmark) read_benchmark(root, recipe, diagnostics);
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
  read_peft(root, recipe, diagnostics);
  read_quantization(root, recipe, diagnostics);
  read_embedding_repair(root, recipe, diagnostics);
  read_neftune(root, recipe, diagnostics);
  read_checkpoint(root, recipe, diagnostics);
  if (recipe.benchmark) {
    recipe.step_scheduler.preemption_signal.clear();  // there is nothing to save
    recipe.checkpoint.enabled = false;
    recipe.lr_scheduler.reset();
    recipe.validation_datasets.clear();
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

std::string tokenizer_folder(const Recipe& recipe, const DatasetSection& section) {
  return section.tokenizer_folder.value_or(recipe.model.folder);
}

void warn_of_idle_tokens(const DatasetSection& section, Diagnostics& diagnostics) {
  const Node* tokenizer = section.node.find("tokenizer");
  for (const char* key : {"add_bos_token", "add_eos_token"}) {
    const Node* asked = tokenizer == nullptr ? nullptr : tokenizer->find(key);
    if (asked == nullptr || asked->is_null() || asked->text() == "false") continue;
    diagnostics.warning_at_key(
        *asked, cat("'", key,
                    "' has no effect here: this dataset, or its chat template, writes all "
                    "special tokens itself"));
  }
}

}  // namespace automodel::recipes

#include "recipes/read/read_data.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "config/bind.h"
#include "core/is_one_of.h"
#include "hub/cache.h"
#include "recipes/read/dataset_recipe.h"
#include "recipes/read/mixture_section.h"
#include "recipes/read/new_findings.h"
#include "recipes/read/read_section.h"
#include "recipes/read/recipe_paths.h"
#include "recipes/read/section_targets.h"
#include "recipes/read/targets_simple.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

struct LoaderSection {
  datasets::DataloaderConfig config;
  datasets::CollaterConfig collater;
  bool stacks = false;
  std::optional<datasets::BiEncoderCollatorConfig> texts;  ///< of queries and passages
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
      if (*collater == CollateTarget::kQueriesAndPassages) {
        section.texts =
            config::bind<datasets::BiEncoderCollatorConfig>(target->arguments, diagnostics);
        section.collater.pad_seq_len_divisible = section.texts->pad_to_multiple_of;
        return section;
      }
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
    if (!side || *side == "right" || *side == "left") continue;
    diagnostics.error(*node.find(key), cat(key, " takes right or left, found '", *side, "'"));
  }
  if (section.padding_side == "left") {
    diagnostics.unsupported(*node.find("padding_side"),
                            "padding_side: left is not in this version");
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
    read.encoder_options = {.adds_bos = section.add_bos_token.value_or(false),
                            .adds_eos = section.add_eos_token.value_or(false)};
    if (section.truncation_side) {
      read.encoder_options.truncates_left = *section.truncation_side == "left";
    }
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
  if (lookup.folder.empty() && is_plain_file(*name)) {
    diagnostics.error(*path, cat("'", *name, "' is a file; the folder of a tokenizer is needed"));
    read.tokenizer_folder = "";
    return;
  }
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

/// Whether two sections name the same class of datasets, whichever of its names they use.
bool are_of_one_class(const Node& one, const Node& other) {
  const Node* names[] = {one.find("_target_"), other.find("_target_")};
  if (names[0] == nullptr || names[1] == nullptr) return false;
  const auto registry = dataset_targets();
  const auto first = registry.find(names[0]->text());
  return first && first == registry.find(names[1]->text());
}

/// Calls `visit` with every dataset by itself in a section: those of mixtures, or the section.
template <typename Section, typename Visit>
void for_each_single(Section& section, const Visit& visit) {
  auto* const parts = section.find("datasets");
  if (parts == nullptr || !parts->is_sequence()) return visit(section);
  for (auto& part : parts->children()) {
    if (part.is_mapping()) for_each_single(part, visit);
  }
}

/// The chat template that all of the training sets which `counts` takes name; null where they
/// differ or name none. `differ` says which.
const Node* common_template(const Node& training, const std::function<bool(const Node&)>& counts,
                            bool& differ) {
  const Node* common = nullptr;
  bool has_unnamed = false;
  differ = false;
  for_each_single(training, [&](const Node& each) {
    if (!counts(each)) return;
    const Node* const named = each.find("chat_template");
    const bool is_named = named != nullptr && !named->is_null();
    has_unnamed = has_unnamed || !is_named;
    differ = differ ||
             (is_named && common != nullptr && named->string_value() != common->string_value());
    if (is_named && common == nullptr) common = named;
  });
  differ = differ || (common != nullptr && has_unnamed);
  return differ ? nullptr : common;
}

/// The chat template that all of the training sets of a set's class name, as common_template()
/// says.
const Node* template_of_training(const Node& set, const Node& training, bool& differ) {
  return common_template(
      training, [&](const Node& each) { return are_of_one_class(set, each); }, differ);
}

/// The chat template for traces whose section names none: that of the training sets of their class,
/// or where there is none of it that of all training sets which name one.
const Node* template_for_traces(const Node& traces, const Node& training, bool& differ) {
  bool has_class = false;
  for_each_single(
      training, [&](const Node& each) { has_class = has_class || are_of_one_class(traces, each); });
  if (has_class) return template_of_training(traces, training, differ);
  return common_template(
      training, [](const Node& each) { return each.has("chat_template"); }, differ);
}

/// A validation set with what it has of the training set, unless it has its own: its tokenizer, and
/// its chat template where both are of one class. Adds the keys of the section that it gets.
Node with_inherited(const Node& validation, const Node& training, std::vector<std::string>& keys,
                    Diagnostics& diagnostics) {
  Node whole = with_tokenizer_of_parts(validation, diagnostics);
  if (!validation.is_mapping() || !training.is_mapping()) return whole;
  if (const Node* tokenizer = training.find("tokenizer");
      tokenizer != nullptr && !tokenizer->is_null() && whole.find("tokenizer") == nullptr) {
    whole.put("tokenizer", *tokenizer);
    keys.emplace_back("tokenizer");
  }
  for_each_single(whole, [&](Node& each) {
    if (each.find("chat_template") != nullptr) return;
    bool differ = false;
    if (const Node* found = template_of_training(each, training, differ)) {
      each.put("chat_template", *found);
      if (&each == &whole) keys.emplace_back("chat_template");
    } else if (differ) {
      diagnostics.warning(each,
                          "the tokenizer's chat template writes this set, which names none: its "
                          "training sets have several");
    }
  });
  return whole;
}

bool is_inherited(const DatasetSection& section, const char* key) {
  return std::find(section.inherited.begin(), section.inherited.end(), key) !=
         section.inherited.end();
}

DatasetSection read_dataset(const Node& node, std::vector<std::string> inherited,
                            Diagnostics& diagnostics) {
  DatasetSection section;
  section.inherited = std::move(inherited);
  section.key = node.key();
  const std::string prefix = "validation_dataset_";
  section.name = section.key.starts_with(prefix) ? section.key.substr(prefix.size()) : "default";
  if (node.is_sequence()) {
    diagnostics.error(node,
                      "several datasets are one of torch.utils.data.ConcatDataset, or of "
                      "datasets.interleave_datasets, with this list as its `datasets`");
    return section;
  }
  section.node = node;
  read_tokenizer(section.node, section, diagnostics);
  const auto target = config::split_target(section.node, diagnostics);
  if (!target) return section;
  const auto registry = dataset_targets();
  if (const DatasetMaker* maker = registry.resolve_maker(*target, diagnostics)) {
    section.plan = (*maker)(*target, diagnostics);
  }
  if (section.plan == nullptr) return section;
  if (!section.plan->takes_special_tokens()) warn_of_idle_tokens(section, diagnostics);
  const Node* side = section.node.find_path("tokenizer.truncation_side");
  const bool is_own = !is_inherited(section, "tokenizer");
  if (side != nullptr && is_own && !side->is_null() && !section.plan->truncates()) {
    diagnostics.warning_at_key(*side,
                               "'truncation_side' has no effect here: this dataset cuts no texts");
  }
  return section;
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
        .num_threads = packing.num_proc.value_or(0),
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

/// Reads `tool_call_eval`: its data are traces of agents, as a data set that trains on them has.
void read_tool_calls(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  const Node* const node = root.find("tool_call_eval");
  if (node == nullptr || node->is_null()) return;
  ToolCallRecipe read;
  read.section = config::bind<ToolCallEvalSection>(
      *node, diagnostics, {.legacy_keys = {}, .other_keys = {"_target_", "tokenizer"}});
  check_section_target(*node, diagnostics);
  while (read.section.metric_prefix.ends_with('/')) read.section.metric_prefix.pop_back();
  if (node->is_mapping()) {
    Node data = *node;
    for (const Node& child : node->children()) {
      if (!is_one_of({"dataset_name", "path", "split", "limit_dataset_samples", "chat_template",
                      "tokenizer"},
                     child.key())) {
        data.erase(child.key());
      }
    }
    data.put("_target_",
             Node::string("nemo_automodel.components.datasets.llm.make_agent_chat_dataset"));
    std::vector<std::string> inherited;
    for (const char* key : {"tokenizer", "chat_template"}) {
      if (node->find(key) != nullptr) continue;
      const Node* found = recipe.dataset.node.find(key);
      bool differ = false;
      if (found == nullptr && std::string_view(key) == "chat_template") {
        found = template_for_traces(data, recipe.dataset.node, differ);
      }
      if (differ) {
        diagnostics.warning(*node,
                            "the tokenizer's chat template writes these traces, which name none: "
                            "the training sets have several");
      }
      if (found == nullptr || found->is_null()) continue;
      data.put(key, *found);
      inherited.emplace_back(key);
    }
    Diagnostics found = diagnostics;
    read.data = read_dataset(data, std::move(inherited), found);
    add_new_findings(found, diagnostics);
  }
  recipe.tool_calls = std::move(read);
}

}  // namespace

void read_data(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  if (const Node* node = root.find("dataset"); node != nullptr && !node->is_null()) {
    recipe.dataset = read_dataset(with_tokenizer_of_parts(*node, diagnostics), {}, diagnostics);
  } else {
    diagnostics.missing(root, "dataset", "missing key 'dataset': what to train on");
  }
  for (const Node& child : root.children()) {
    const bool is_set =
        child.key() == "validation_dataset" || child.key().starts_with("validation_dataset_");
    if (is_set && !child.is_null()) {
      Diagnostics found = diagnostics;
      std::vector<std::string> keys;
      const Node whole = with_inherited(child, recipe.dataset.node, keys, found);
      recipe.validation_datasets.push_back(read_dataset(whole, std::move(keys), found));
      add_new_findings(found, diagnostics);
    }
  }
  read_tool_calls(root, recipe, diagnostics);
  LoaderSection loader = read_loader(root, "dataloader", diagnostics);
  recipe.dataloader = loader.config;
  recipe.collater = loader.collater;
  recipe.stacks = loader.stacks;
  LoaderSection validation = read_loader(root, "validation_dataloader", diagnostics);
  recipe.validation_dataloader = validation.config;
  recipe.validation_collater = validation.collater;
  recipe.validation_stacks = validation.stacks;
  recipe.texts = loader.texts;
  recipe.validation_texts = validation.texts;
  read_packing(root, recipe, diagnostics);
}

std::string tokenizer_folder(const Recipe& recipe, const DatasetSection& section) {
  return section.tokenizer_folder.value_or(recipe.model.folder);
}

void warn_of_idle_tokens(const DatasetSection& section, Diagnostics& diagnostics) {
  if (is_inherited(section, "tokenizer")) return;
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

#include "recipes/check/check_data.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "models/catalog.h"
#include "recipes/check/place_of.h"
#include "recipes/read/classifier_labels.h"
#include "recipes/read/new_findings.h"
#include "recipes/read/read_data.h"
#include "recipes/read/read_model.h"
#include "recipes/read/recipe_paths.h"
#include "tokenizers/tokenizer.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// Warns of samples that are longer than what the model was made for.
void check_positions(const Recipe& recipe, const DatasetSection& section,
                     Diagnostics& diagnostics) {
  const Json& config = recipe.model.hf_config;
  if (!config.is_object()) return;
  const Json* text = config.find("text_config");
  const Json& of_text = text != nullptr && text->is_object() ? *text : config;
  const Json* positions = of_text.find("n_positions");  // GPT-2's
  if (positions == nullptr) positions = of_text.find("max_position_embeddings");
  if (positions == nullptr || !positions->is_int()) return;
  const int64_t usable = models::encoder_positions(config).value_or(positions->as_int());
  for (const char* key : {"seq_length", "seq_len", "max_length", "max_seq_len"}) {
    const Node* written = section.node.find(key);
    const std::optional<int64_t> length = written ? written->int_value() : std::nullopt;
    if (!length || *length <= usable) continue;
    diagnostics.warning(*written,
                        cat(key, " ", *length, " is longer than the ", usable,
                            " positions that the model was made for, by its config.json"));
  }
}

/// Warns of a length that nothing cuts or pads samples to. Block diffusion goes by it in any case.
void check_length(const Recipe& recipe, const DatasetSection& section, Diagnostics& diagnostics) {
  const Node* written = section.node.find("seq_length");
  const bool has_length = written != nullptr && written->is_scalar() && !written->is_null();
  if (!has_length || recipe.dllm || section.plan == nullptr) return;
  const std::string missing = section.plan->missing_for_length();
  if (missing.empty()) return;
  diagnostics.warning_at_key(*written, cat("'seq_length' has no effect on samples without ",
                                           missing, "; automodel plan alone goes by it"));
}

/// Checks that a dataset by itself has the chat template that it needs, and warns of keys that have
/// none to act on.
void check_template_use(const DatasetSection& section, const tokenizers::Tokenizer& tokenizer,
                        const std::string& folder, Diagnostics& diagnostics) {
  const datasets::TemplateUse use = section.plan->template_use();
  datasets::check_template(use, tokenizer.chat_template(), folder);
  if (use != datasets::TemplateUse::kTokenizersIfAny) return;
  if (tokenizer.chat_template()) {
    warn_of_idle_tokens(section, diagnostics);
  } else if (const Node* key = section.node.find("use_hf_chat_template")) {
    diagnostics.warning_at_key(
        *key, cat("'use_hf_chat_template' has no effect: the tokenizer of ", folder,
                  " has no chat template; rows are trained as they are"));
  }
}

/// The largest token id that a folder's tokenizer can give, against the model's vocabulary.
void check_tokenizer(const Recipe& recipe, const DatasetSection& section,
                     Diagnostics& diagnostics) {
  const std::string folder = tokenizer_folder(recipe, section);
  if (folder.empty()) {
    const bool is_known_missing =
        section.tokenizer_folder.has_value() || !recipe.model.source.empty();
    if (!is_known_missing) {
      diagnostics.missing(section.node, "tokenizer",
                          "missing key 'tokenizer': the model has no folder to take one from");
    }
    return;
  }
  try {
    const auto tokenizer = tokenizers::Tokenizer::load(folder);
    const int64_t vocab_size = vocabulary_of(recipe.model);
    if (vocab_size > 0 && tokenizer.id_bound() > vocab_size) {
      diagnostics.error(section.node,
                        cat("the tokenizer of ", folder, " has ids up to ",
                            tokenizer.id_bound() - 1, ", the model's vocab_size is ", vocab_size));
    }
    datasets::check_added_tokens(tokenizer, section.encoder_options);
    for (const DatasetSection* single : section.single_sections()) {
      check_template_use(*single, tokenizer, folder, diagnostics);
    }
  } catch (const UnsupportedError& error) {
    diagnostics.unsupported(section.node, error.what());
  } catch (const UserError& error) {
    diagnostics.error(section.node, error.what());
  }
}

/// The node in a dataset's section that an error text refers to: a value that it quotes, else a
/// node whose key or whole value it names, else the section. Datasets know their values, not where
/// the recipe has them.
const Node& place_of_text(const Node& section, const std::string& text) {
  const Node* named = nullptr;
  std::vector<const Node*> open = {&section};
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    const bool is_value = node->is_scalar() && !node->text().empty();
    if (is_value && text.find(cat("'", node->text(), "'")) != std::string::npos) return *node;
    const bool is_named = node != &section && node->key() != "_target_" &&
                          (text.find(node->key()) != std::string::npos ||
                           (is_value && text.find(node->text()) != std::string::npos));
    if (is_named && named == nullptr) named = node;
    // Reversed, so that children come in the order they were written.
    for (auto child = node->children().rbegin(); child != node->children().rend(); ++child) {
      if (!child->key().empty()) open.push_back(&*child);
    }
  }
  return named != nullptr ? *named : section;
}

/// Checks the tokens that a dataset draws against the model's vocabulary.
void check_drawn_tokens(const Recipe& recipe, const DatasetSection& section,
                        Diagnostics& diagnostics) {
  const std::optional<int64_t> drawn = section.plan->drawn_vocabulary();
  const int64_t of_model = vocabulary_of(recipe.model);
  if (!drawn || of_model == 0 || *drawn <= of_model) return;
  const Node* place = section.node.find("vocab_size");
  diagnostics.error(place != nullptr ? *place : section.node,
                    cat("vocab_size ", *drawn, " is larger than the model's ", of_model));
}

/// Warns of the loader's keys that change nothing about a stream, which is read in its own order.
void warn_of_idle_loader(const Recipe& recipe, const char* key,
                         const datasets::DataloaderConfig& loader, Diagnostics& diagnostics) {
  const std::pair<const char*, bool> keys[] = {{"shuffle", loader.shuffle == true},
                                               {"group_by_length", loader.group_by_length},
                                               {"num_workers", loader.num_workers > 1},
                                               {"prefetch_factor", loader.prefetch_factor > 0}};
  for (const auto& [name, is_set] : keys) {
    if (!is_set) continue;
    diagnostics.warning_at_key(
        place_of(recipe, key, name),
        cat("'", name,
            "' has no effect: samples are read one after another, in the order in which the files "
            "have them; shuffle_files of the dataset shuffles the files"));
  }
}

/// Checks the keys of the loader that only some datasets have.
void check_loader(const Recipe& recipe, const DatasetSection& section, Diagnostics& diagnostics) {
  const bool is_training = section.key == "dataset";
  const char* key = is_training ? "dataloader" : "validation_dataloader";
  const datasets::DataloaderConfig& loader =
      is_training ? recipe.dataloader : recipe.validation_dataloader;
  if (section.plan->is_stream()) warn_of_idle_loader(recipe, key, loader, diagnostics);
  if (!section.plan->takes_dataloader_type()) {
    if (!loader.dataloader_type) return;
    diagnostics.error(
        place_of(recipe, key, "dataloader_type"),
        "dataloader_type is for MegatronPretraining; `shuffle` says whether other data "
        "are");
    return;
  }
  if (loader.shuffle == true) {
    diagnostics.error(
        place_of(recipe, key, "shuffle"),
        "samples of MegatronPretraining are in an order already; dataloader_type: cyclic "
        "shuffles them anew every epoch");
  }
  if (loader.group_by_length) {
    diagnostics.error(place_of(recipe, key, "group_by_length"),
                      "samples of MegatronPretraining are all of one length");
  }
}

/// Warns of what only the hub's data sets and folders have where rows are files that are named one
/// by one: these have no configurations, and all of their rows are of whatever split is asked for.
void check_split_of_files(const DatasetSection& section, Diagnostics& diagnostics) {
  const std::optional<datasets::SourceOptions> source = section.plan->source();
  if (!source || source->paths.empty()) return;
  for (const std::string& path : source->paths) {
    if (!path_exists(path) || is_directory(path)) return;
  }
  const std::string files = source->paths.size() == 1 ? source->paths.front() : "these files";
  if (const Node* name = section.node.find("name"); name != nullptr && source->name) {
    diagnostics.warning_at_key(
        *name, cat("'name' has no effect: ", files, source->paths.size() == 1 ? " has" : " have",
                   " no configurations, as data sets of the hub and folders have"));
  }
  const Node* key = section.node.find("split");
  if (key == nullptr || !source->split) return;
  for (const datasets::Split& split : datasets::Split::parse_sum(*source->split)) {
    if (split.name == "train") continue;
    if (parse_double(split.name)) {
      diagnostics.error(*key, cat("a split is a name or a slice of one, found '", split.name,
                                  "': 'train[:90%]' takes the first 90 % of the rows, "
                                  "'train[90%:]' the rest"));
      continue;
    }
    diagnostics.warning(*key, cat("all rows of ", files, " are taken as '", split.name,
                                  "': only data sets of the hub and folders have splits"));
    return;
  }
}

/// Checks the files and options of a dataset by itself.
void check_rows(const Recipe& recipe, const DatasetSection& section, Diagnostics& diagnostics) {
  if (section.plan == nullptr) return;
  check_drawn_tokens(recipe, section, diagnostics);
  try {
    if (const auto note = section.plan->check()) {
      diagnostics.note(section.node,
                       cat(*note, looked_for_below(section.node, *note, diagnostics)));
    }
    const datasets::ClassifierFacts classifier = classifier_facts(recipe);
    if (!classifier.labels.empty()) section.plan->check_classes(classifier);
    check_split_of_files(section, diagnostics);
  } catch (const UnsupportedError& error) {
    diagnostics.unsupported(place_of_text(section.node, error.what()), error.what());
  } catch (const UserError& error) {
    diagnostics.error(place_of_text(section.node, error.what()),
                      cat(error.what(), looked_for_below(section.node, error.what(), diagnostics)));
  }
}

/// Without a validation set nothing is validated.
void check_validation_steps(const Recipe& recipe, Diagnostics& diagnostics) {
  const Node* key = recipe.root.find_path("step_scheduler.val_every_steps");
  if (key == nullptr || key->is_null() || !recipe.validation_datasets.empty() || recipe.benchmark)
    return;
  diagnostics.warning_at_key(*key,
                             "'val_every_steps' has no effect: there is no validation_dataset");
}

/// LOWEST_VAL follows one of several validation sets, which must be there, or the only one.
void check_best_metric(const Recipe& recipe, Diagnostics& diagnostics) {
  const std::vector<DatasetSection>& sets = recipe.validation_datasets;
  const std::string& wanted = recipe.checkpoint.best_metric_key;
  if (!recipe.checkpoint.enabled && !recipe.early_stopping) return;
  std::vector<std::string> names;
  for (const DatasetSection& set : sets) names.push_back(set.name);
  if (std::find(names.begin(), names.end(), wanted) != names.end()) return;
  const Node* key = recipe.root.find_path("checkpoint.best_metric_key");
  if (sets.size() < 2) {
    if (key == nullptr || key->is_null()) return;
    diagnostics.warning_at_key(
        *key, sets.empty() ? "'best_metric_key' has no effect: there is no validation_dataset"
                           : "'best_metric_key' has no effect: LOWEST_VAL follows the only "
                             "validation set, whatever it is called");
    return;
  }
  const std::string text =
      cat("best_metric_key '", wanted, "' names none of the validation sets, which are ",
          join(names, ", "), ": LOWEST_VAL ", recipe.early_stopping ? "and early_stopping " : "",
          "would follow none");
  if (key != nullptr && !key->is_null()) {
    diagnostics.error(*key, cat(text, did_you_mean(wanted, names)));
  } else if (recipe.early_stopping) {
    diagnostics.error(*recipe.root.find("early_stopping"), text);
  } else {
    diagnostics.warning(place_of(recipe, "checkpoint", "best_metric_key"), text);
  }
}

}  // namespace

namespace {

/// Megatron's data have as many samples as are asked for.
void check_num_train_samples(const Recipe& recipe, Diagnostics& diagnostics) {
  const Node* const asked = recipe.dataset.node.find("num_train_samples");
  const auto& steps = recipe.step_scheduler.max_steps;
  if (asked == nullptr || !asked->int_value() || !steps) return;
  const int64_t batch = recipe.step_scheduler.global_batch_size;
  if (*asked->int_value() / batch >= *steps || *steps > INT64_MAX / batch) return;
  const int64_t wanted = *steps * batch;
  diagnostics.error(*asked, cat("num_train_samples ", *asked->int_value(),
                                " is less than max_steps * global_batch_size, ", wanted));
}

}  // namespace

void check_validation_sets(const Recipe& recipe, Diagnostics& diagnostics) {
  check_num_train_samples(recipe, diagnostics);
  if (recipe.early_stopping && recipe.validation_datasets.empty()) {
    diagnostics.warning_at_key(*recipe.root.find("early_stopping"),
                               "'early_stopping' has no effect: there is no validation_dataset");
  }
  check_best_metric(recipe, diagnostics);
  check_validation_steps(recipe, diagnostics);
}

namespace {

/// Whether the tokenizer of a section's data sets has a chat template; false where it is not here.
bool has_own_template(const Recipe& recipe, const DatasetSection& section) {
  const std::string folder = tokenizer_folder(recipe, section);
  try {
    return !folder.empty() && tokenizers::Tokenizer::load(folder).chat_template().has_value();
  } catch (const UserError&) {
    return false;  // said of the section
  }
}

/// Warns of datasets of a mixture whose chat template no exported model has: it has the first one
/// that a dataset names, else the tokenizer's.
void check_templates(const Recipe& recipe, Diagnostics& diagnostics) {
  struct Written {
    const DatasetSection* section;
    std::optional<std::string> named;  ///< absent: by the tokenizer's template
  };
  std::vector<Written> written;
  std::optional<bool> has_own;
  for (const DatasetSection* single : recipe.dataset.single_sections()) {
    if (single->plan == nullptr) continue;
    const datasets::TemplateUse use = single->plan->template_use();
    try {
      auto named = single->plan->named_template();
      if (!named && use == datasets::TemplateUse::kNone) continue;
      if (!named && use == datasets::TemplateUse::kTokenizersIfAny) {
        if (!has_own) has_own = has_own_template(recipe, recipe.dataset);
        if (!*has_own) continue;
      }
      written.push_back({single, std::move(named)});
    } catch (const UserError&) {
      // Said of the dataset already.
    }
  }
  const auto exported =
      std::ranges::find_if(written, [](const Written& each) { return each.named.has_value(); });
  if (exported == written.end()) return;
  for (const Written& each : written) {
    if (each.named == exported->named) continue;
    const Node* const key = each.section->node.find("chat_template");
    diagnostics.warning(key != nullptr ? *key : each.section->node,
                        cat("this dataset is written with another chat template than ",
                            exported->section->key, ", whose template the exported model has"));
  }
}

}  // namespace

void check_datasets(const Recipe& recipe, bool loads_tokenizers, Diagnostics& diagnostics) {
  check_templates(recipe, diagnostics);
  std::vector<const DatasetSection*> sections = {&recipe.dataset};
  for (const DatasetSection& section : recipe.validation_datasets) sections.push_back(&section);
  if (recipe.tool_calls) sections.push_back(&recipe.tool_calls->data);
  for (const DatasetSection* section : sections) {
    Diagnostics found = diagnostics;
    if (section->plan != nullptr) check_loader(recipe, *section, found);
    for (const DatasetSection* single : section->single_sections()) {
      check_rows(recipe, *single, found);
      check_positions(recipe, *single, found);
      check_length(recipe, *single, found);
    }
    const bool has_tokenizer = section->plan != nullptr && section->plan->needs_tokenizer();
    if (has_tokenizer && loads_tokenizers) check_tokenizer(recipe, *section, found);
    add_new_findings(found, diagnostics);
  }
}

}  // namespace automodel::recipes

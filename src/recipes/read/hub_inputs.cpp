#include "recipes/read/hub_inputs.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "datasets/rows/hub_data.h"
#include "hub/cache.h"
#include "hub/hub.h"
#include "recipes/read/read_recipe.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// Something on the hub that a recipe names, and the node that names it.
struct HubInput {
  Node place;
  std::string name;  // the first one, where the node names several
  std::optional<std::string> cache_dir;
  std::function<void(hub::Hub&)> fetch;
};

/// A node whose files could not be fetched, and why.
struct HubFinding {
  Node place;
  hub::HubFailure failure;
  std::string text;
};

bool is_on_hub(const std::string& name) {
  return !path_exists(name) && hub::looks_like_hub_name(name);
}

/// The fetch of a model's parts, in this order.
HubInput model_input(const Node& place, const HubName& name, std::vector<hub::ModelPart> parts) {
  const hub::Repository repository{hub::RepositoryKind::kModel, name.name,
                                   name.revision.value_or("main")};
  return {place, name.name, name.cache_dir, [repository, parts = std::move(parts)](hub::Hub& hub) {
            hub::fetch_model(hub, repository, parts);
          }};
}

void add_model(const ModelRecipe& model, HubFetch what, std::vector<HubInput>& inputs) {
  if (!is_on_hub(model.source)) return;
  std::vector<hub::ModelPart> parts = {hub::ModelPart::kConfig};
  if (what != HubFetch::kConfig) parts.push_back(hub::ModelPart::kTokenizer);
  if (what == HubFetch::kAll && !model.draws_weights()) parts.push_back(hub::ModelPart::kWeights);
  inputs.push_back(model_input(
      model.source_node, {model.source, model.section.cache_dir, model.section.revision}, parts));
}

/// The fetch of the files that a dataset by itself reads.
void add_rows(const DatasetSection& section, HubFetch what, std::vector<HubInput>& inputs) {
  if (section.plan == nullptr) return;
  std::vector<datasets::SourceOptions> sources = section.plan->hub_sources();
  if (auto source = section.plan->source()) sources.push_back(std::move(*source));
  Node place = section.node;
  for (const char* key :
       {"path_or_dataset_id", "path_or_dataset", "dataset_name", "data_dir_list"}) {
    if (const Node* named = section.node.find(key)) place = *named;
  }
  for (const datasets::SourceOptions& source : sources) {
    const std::vector<hub::Repository> sets = datasets::hub_data_sets(source);
    if (sets.empty()) continue;
    inputs.push_back({place, sets[0].id, source.cache_dir, [source, what](hub::Hub& hub) {
                        if (what == HubFetch::kData || what == HubFetch::kAll) {
                          datasets::fetch_data_files(hub, source);
                        } else {
                          datasets::fetch_data_cards(hub, source);
                        }
                      }});
  }
}

void add_dataset(const DatasetSection& section, HubFetch what, std::vector<HubInput>& inputs) {
  if (what == HubFetch::kConfig) return;
  if (section.tokenizer_name && is_on_hub(section.tokenizer_name->name)) {
    inputs.push_back(
        model_input(section.tokenizer_node, *section.tokenizer_name, {hub::ModelPart::kTokenizer}));
  }
  for (const DatasetSection* single : section.single_sections()) {
    add_rows(*single, what, inputs);
  }
}

std::vector<HubInput> inputs_of(const Recipe& recipe, HubFetch what) {
  std::vector<HubInput> inputs;
  add_model(recipe.model, what, inputs);
  if (recipe.distillation) add_model(recipe.distillation->teacher, what, inputs);
  add_dataset(recipe.dataset, what, inputs);
  for (const DatasetSection& section : recipe.validation_datasets) {
    add_dataset(section, what, inputs);
  }
  if (recipe.tool_calls) add_dataset(recipe.tool_calls->data, what, inputs);
  return inputs;
}

hub::Settings settings_of(const HubInput& input) {
  return hub::Settings::from_environment(hub::process_environment(), input.cache_dir);
}

/// Fetches the files that describe models and data sets; returns what failed. A check tries twice
/// only.
std::vector<HubFinding> fetch_descriptions(const std::vector<HubInput>& inputs, HubFetch what,
                                           bool is_run, Reporter& reporter) {
  std::vector<HubFinding> findings;
  for (const HubInput& input : inputs) {
    hub::Settings settings = settings_of(input);
    if (settings.is_offline) continue;
    if (!is_run || what == HubFetch::kConfig) settings.num_attempts = 2;
    try {
      hub::Hub hub(settings, reporter);
      input.fetch(hub);
    } catch (const InputError& error) {
      if (is_run) throw;
      // The cache cannot be written to: the check uses what is in it.
      findings.push_back({input.place, hub::HubFailure::kUnreachable, error.what()});
    } catch (const hub::HubError& error) {
      const bool is_known = error.failure() == hub::HubFailure::kDenied;
      findings.push_back(
          {input.place, error.failure(),
           cat(error.what(), is_known ? std::string() : hub::local_hint(input.name))});
      // Nobody waits for the same timeouts again.
      if (error.failure() == hub::HubFailure::kUnreachable) break;
    }
  }
  return findings;
}

}  // namespace

Recipe read_with_hub(const config::Document& document, HubFetch what, bool is_run,
                     Reporter& reporter, Diagnostics& diagnostics) {
  AM_CHECK(what == HubFetch::kConfig || what == HubFetch::kDescriptions);
  Recipe recipe = read_recipe(document.root, diagnostics);
  const std::vector<HubInput> inputs = inputs_of(recipe, what);
  if (inputs.empty()) return recipe;
  // The first reading finds the names; after fetching, a second one can read what they stand for.
  const std::vector<HubFinding> findings = fetch_descriptions(inputs, what, is_run, reporter);
  diagnostics = Diagnostics(document.sources);
  recipe = read_recipe(document.root, diagnostics);
  for (const HubFinding& finding : findings) {
    const bool is_silent = finding.failure == hub::HubFailure::kUnreachable ||
                           finding.failure == hub::HubFailure::kBroken;
    if (is_silent && !is_run) {
      diagnostics.note(finding.place, finding.text);
      continue;
    }
    diagnostics.error(finding.place, finding.text);
    if (is_silent) {
      throw hub::HubError(finding.failure, diagnostics.render(diagnostics.findings().back()));
    }
  }
  return recipe;
}

bool awaits_weights(const ModelRecipe& model) {
  if (!is_on_hub(model.source) || model.draws_weights()) return false;
  const hub::Repository repository{hub::RepositoryKind::kModel, model.source,
                                   model.section.revision.value_or("main")};
  const auto snapshot = hub::find_cached(
      repository, hub::cache_folder(hub::process_environment(), model.section.cache_dir));
  if (!snapshot || !snapshot->is_listed) return false;
  try {
    const auto files = hub::model_files(repository, *snapshot, hub::ModelPart::kWeights);
    return !hub::missing_files(*snapshot, files).empty();
  } catch (const UserError&) {
    return false;  // nothing to fetch: the folder is checked as it is
  }
}

void fetch_inputs(const Recipe& recipe, Reporter& reporter, ByteCounter& bytes, HubFetch what) {
  for (const HubInput& input : inputs_of(recipe, what)) {
    hub::Hub hub(settings_of(input), reporter, &bytes);
    input.fetch(hub);
  }
}

}  // namespace automodel::recipes

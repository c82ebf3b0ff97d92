#include "recipes/read/read_trackers.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "config/bind.h"
#include "core/error.h"
#include "core/file.h"
#include "core/is_one_of.h"
#include "core/text.h"
#include "recipes/read/section_targets.h"
#include "trackers/wandb.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

void read_tensorboard(const Node& section, Recipe& recipe, Diagnostics& diagnostics) {
  const auto config = config::bind<trackers::TensorBoardConfig>(section, diagnostics);
  if (const Node* folder = section.find("log_dir"); config.log_dir && config.log_dir->empty()) {
    diagnostics.error(*folder, "expected the name of a folder, found ''");
  }
  if (config.enable) recipe.tensorboard = config;
}

/// Finds what is wrong with the server's address, wherever it comes from.
void check_server(const Node& section, const trackers::MlflowConfig& config,
                  Diagnostics& diagnostics) {
  const bool is_in_recipe = !config.tracking_uri.value_or("").empty();
  const char* variable = std::getenv("MLFLOW_TRACKING_URI");
  const std::string uri = is_in_recipe ? *config.tracking_uri : variable == nullptr ? "" : variable;
  if (uri.empty()) {
    diagnostics.unsupported(section,
                            "runs in a folder of MLflow's own, without a server, are not in this "
                            "version: set tracking_uri, or MLFLOW_TRACKING_URI, to a server's "
                            "http://HOST:PORT (`mlflow server` starts one)");
    return;
  }
  const auto problem = trackers::problem_of_tracking_uri(uri);
  if (!problem) return;
  const Node& place = is_in_recipe ? *section.find("tracking_uri") : section;
  const std::string text = cat(is_in_recipe ? "" : "MLFLOW_TRACKING_URI: ", problem->text);
  if (problem->is_absent) {
    diagnostics.unsupported(place, text);
  } else {
    diagnostics.error(place, text);
  }
}

void read_mlflow(const Node& section, Recipe& recipe, Diagnostics& diagnostics) {
  const auto config = config::bind<trackers::MlflowConfig>(
      section, diagnostics, {.legacy_keys = {}, .other_keys = {"_target_"}});
  check_section_target(section, diagnostics);
  if (section.is_mapping()) check_server(section, config, diagnostics);
  if (const Node* name = section.find("experiment_name"); config.experiment_name.empty()) {
    diagnostics.error(*name, "expected the name of an experiment, found ''");
  }
  recipe.mlflow = config;
}

/// Keys of wandb.init that mean nothing to a program without Python.
std::vector<config::LegacyKey> wandb_legacy_keys() {
  return {{"save_dir", "wandb.init has no such key; `dir` says where files go"},
          {"save_code", "there is no Python code to save"},
          {"tensorboard", "metrics are sent without it"},
          {"sync_tensorboard", "metrics are sent without it"},
          {"monitor_gym", "there is no gym"},
          {"reinit", "a process has one run"},
          {"allow_val_change", "the values of a recipe do not change"},
          {"anonymous", "wandb has no anonymous runs any more"},
          {"settings", "they are the wandb package's own"}};
}

/// Keys of wandb.init that ask for what is not here, with what to do instead.
constexpr std::pair<const char*, const char*> kWandbUnsupported[] = {
    {"config", "the recipe is the run's configuration; leave `config` out"},
    {"config_exclude_keys", "the whole recipe is the run's configuration"},
    {"config_include_keys", "the whole recipe is the run's configuration"},
    {"resume_from", "rewinding a run is not in this version; `resume` and `id` go on in one"},
    {"fork_from", "forking a run is not in this version; `resume` and `id` go on in one"}};

/// The section with `resume: true` as wandb.init takes it, and without what says nothing.
Node with_resume_text(Node section) {
  const Node* resume = section.find("resume");
  if (resume == nullptr || !resume->bool_value()) return section;
  if (*resume->bool_value()) {
    section.find("resume")->assume_value(Node::string("auto"));
  } else {
    section.erase("resume");
  }
  return section;
}

/// A section that is off, without keys that wandb.init has not, which get a warning: the wandb
/// package never sees them.
Node without_unknown_keys(Node section, Diagnostics& diagnostics) {
  std::vector<std::string> known;
  for_each_field<trackers::WandbConfig>([&](const auto& field) { known.emplace_back(field.name); });
  for (const config::LegacyKey& key : wandb_legacy_keys()) known.push_back(key.name);
  for (const auto& [key, text] : kWandbUnsupported) known.emplace_back(key);
  std::vector<std::string> unknown;
  for (const Node& child : section.children()) {
    if (is_one_of(known, child.key())) continue;
    unknown.push_back(child.key());
    diagnostics.warning_at_key(
        child, cat("unknown key '", child.key(), "'", did_you_mean(child.key(), known)));
  }
  for (const std::string& key : unknown) section.erase(key);
  return section;
}

void check_wandb_names(const Node& section, const trackers::WandbConfig& config,
                       const std::string& folder, Diagnostics& diagnostics) {
  if (config.project) {
    const std::string text = trackers::problem_of_project(*config.project);
    if (!text.empty()) diagnostics.error(*section.find("project"), text);
  }
  if (config.id) {
    const std::string text = trackers::problem_of_run_id(*config.id);
    if (!text.empty()) diagnostics.error(*section.find("id"), text);
  }
  for (const std::string& tag : config.tags) {
    const std::string text = trackers::problem_of_tag(tag);
    if (!text.empty()) diagnostics.error(*section.find("tags"), text);
  }
  const bool has_id = config.id || !trackers::process_environment()("WANDB_RUN_ID").empty() ||
                      path_exists(path_join(folder, trackers::kWandbRunFile));
  if (config.resume == trackers::WandbResume::kMust && !has_id) {
    diagnostics.error(*section.find("resume"), "resume: must needs the id of a run: set id");
  }
}

void read_wandb(const Node& written, Recipe& recipe, Diagnostics& diagnostics) {
  const Node* enable = written.find("enable");
  const bool is_off = enable != nullptr && enable->bool_value() == false;
  const Node section =
      with_resume_text(is_off ? without_unknown_keys(written, diagnostics) : written);
  std::vector<std::string> unsupported;
  for (const auto& [key, text] : kWandbUnsupported) {
    unsupported.emplace_back(key);
    const Node* node = section.find(key);
    const bool is_asked = node != nullptr && !node->is_null() && !is_off;
    if (is_asked) diagnostics.unsupported(*node, text);
  }
  const auto config = config::bind<trackers::WandbConfig>(section, diagnostics,
                                                          {.legacy_keys = wandb_legacy_keys(),
                                                           .other_keys = std::move(unsupported),
                                                           .required_keys = {}});
  if (!section.is_mapping() || is_off) return;
  check_wandb_names(section, config, recipe.checkpoint.checkpoint_dir, diagnostics);
  try {
    const auto settings =
        trackers::WandbSettings::from_environment(trackers::process_environment(), config);
    const bool is_mode_wrong =
        section.find("mode") != nullptr && !config.mode && !section.find("mode")->is_null();
    if (settings.lacks_key && !is_mode_wrong && !recipe.benchmark) {
      diagnostics.warning_at_key(
          section, cat("there is no API key: the run is kept in a file for `wandb sync`; set ",
                       settings.key_place, ", or mode: offline"));
    }
    if (settings.mode != trackers::WandbMode::kDisabled) recipe.wandb = config;
  } catch (const UserError& error) {
    diagnostics.error(section, error.what());
  }
}

}  // namespace

void read_trackers(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  if (const Node* node = root.find("tensorboard"); node != nullptr && !node->is_null()) {
    read_tensorboard(*node, recipe, diagnostics);
  }
  if (const Node* node = root.find("mlflow"); node != nullptr && !node->is_null()) {
    read_mlflow(*node, recipe, diagnostics);
  }
  if (const Node* node = root.find("wandb"); node != nullptr && !node->is_null()) {
    read_wandb(*node, recipe, diagnostics);
  }
  const Node* scheduler = root.find("step_scheduler");
  const Node* every = scheduler == nullptr ? nullptr : scheduler->find("log_remote_every_steps");
  if (every != nullptr && !every->is_null() && !recipe.mlflow && !recipe.wandb) {
    diagnostics.warning_at_key(
        *every,
        "'log_remote_every_steps' has no effect: it is for mlflow and wandb; "
        "training.jsonl and tensorboard have every step");
  }
}

}  // namespace automodel::recipes

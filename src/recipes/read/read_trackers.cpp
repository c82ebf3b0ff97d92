#include "recipes/read/read_trackers.h"

#include <cstdlib>

#include "config/bind.h"
#include "core/text.h"
#include "recipes/read/section_targets.h"

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

}  // namespace

void read_trackers(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  if (const Node* node = root.find("tensorboard"); node != nullptr && !node->is_null()) {
    read_tensorboard(*node, recipe, diagnostics);
  }
  if (const Node* node = root.find("mlflow"); node != nullptr && !node->is_null()) {
    read_mlflow(*node, recipe, diagnostics);
  }
  const Node* scheduler = root.find("step_scheduler");
  const Node* every = scheduler == nullptr ? nullptr : scheduler->find("log_remote_every_steps");
  if (every != nullptr && !every->is_null() && !recipe.mlflow) {
    diagnostics.warning_at_key(*every,
                               "'log_remote_every_steps' has no effect: it is for mlflow; "
                               "training.jsonl and tensorboard have every step");
  }
}

}  // namespace automodel::recipes

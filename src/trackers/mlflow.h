#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/reporter.h"
#include "trackers/mlflow_settings.h"
#include "trackers/tracker.h"

namespace automodel::trackers {

/// The file in a run's folder that holds the id of its MLflow run, as upstream's.
inline constexpr const char* kMlflowRunFile = "mlflow_run_id";

/// What an MLflow run is told once.
struct MlflowRun {
  MlflowConfig config;
  MlflowSettings settings;
  std::string folder;       ///< the run's own, where kMlflowRunFile is
  bool is_resumed = false;  ///< the run continues from a checkpoint
  std::vector<std::pair<std::string, std::string>> parameters;
  std::string source;  ///< the recipe's path
};

/// Sends a run's records to an MLflow server: finds or makes the experiment, makes a run or goes on
/// in the one of the run's folder, sends parameters and records, and says how the run ended.
/// Nothing is asked before start().
std::unique_ptr<Tracker> make_mlflow(MlflowRun run, std::shared_ptr<Reporter> reporter);

/// metric_name() in characters that MLflow takes.
std::string mlflow_metric(const Record& record, const std::string& name);

/// Parameters of a recipe whose values are `{"dotted.key": {"value": V, "origin": O}}`
/// (config::values_with_origins): those that the recipe does not leave out. `depth` levels below
/// the sections have parameters of their own, what is deeper is JSON in them; absent: all levels.
std::vector<std::pair<std::string, std::string>> mlflow_parameters(const Json& values,
                                                                   std::optional<int64_t> depth);

}  // namespace automodel::trackers

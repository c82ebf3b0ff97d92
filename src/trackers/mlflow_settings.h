#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "core/field.h"
#include "trackers/variables.h"

namespace automodel::trackers {

/// `mlflow`; keys and defaults are upstream's.
struct MlflowConfig {
  std::string experiment_name = "automodel-experiment";
  std::string run_name;
  std::optional<std::string> tracking_uri;
  std::optional<std::string> artifact_location;
  std::map<std::string, std::string> tags;
  bool resume = true;
  std::optional<std::string> description;
  std::optional<int64_t> flatten_depth = 1;

  static constexpr auto fields() {
    using C = MlflowConfig;
    return std::tuple{
        field("experiment_name", &C::experiment_name, "experiment; it is made if it is not there"),
        field("run_name", &C::run_name, "name of the run; empty: the server chooses one"),
        field("tracking_uri", &C::tracking_uri,
              "server, http:// or https://; absent: MLFLOW_TRACKING_URI"),
        field("artifact_location", &C::artifact_location, "of an experiment that is made"),
        field("tags", &C::tags, "tags of the run"),
        field("resume", &C::resume,
              "a run that continues from a checkpoint goes on in its MLflow run"),
        field("description", &C::description, "description of the run"),
        field("flatten_depth", &C::flatten_depth,
              "levels of the recipe that become parameters of their own, below its sections; null: "
              "all")
            .at_least(0)};
  }
};

/// How an MLflow server is reached. The variables are those of the mlflow package.
struct MlflowSettings {
  std::string tracking_uri;         ///< MLFLOW_TRACKING_URI, without a slash at its end
  std::string token;                ///< MLFLOW_TRACKING_TOKEN
  std::string user;                 ///< MLFLOW_TRACKING_USERNAME
  std::string password;             ///< MLFLOW_TRACKING_PASSWORD
  std::string ca_file;              ///< MLFLOW_TRACKING_SERVER_CERT_PATH; "": the machine's
  bool checks_certificates = true;  ///< not MLFLOW_TRACKING_INSECURE_TLS
  double timeout_seconds = 120;     ///< MLFLOW_HTTP_REQUEST_TIMEOUT
  std::string run_id;               ///< MLFLOW_RUN_ID: the run to go on in
  std::string user_name;            ///< LOGNAME or USER, a tag of the run

  /// Throws UserError for a value that nothing can be made of.
  static MlflowSettings from_environment(const Environment& environment,
                                         const MlflowConfig& config);
};

/// What is wrong with a tracking URI.
struct UriProblem {
  bool is_absent = false;  ///< right, but not in this version
  std::string text;
};

/// Nothing for http://HOST[:PORT][/PATH] and https://...; it is never asked.
std::optional<UriProblem> problem_of_tracking_uri(const std::string& uri);

}  // namespace automodel::trackers

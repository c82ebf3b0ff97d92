#include "trackers/mlflow_settings.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "trackers/server_answer.h"

namespace automodel::trackers {

namespace {

constexpr const char* kServer =
    "expected an MLflow server, http://HOST:PORT or https://HOST (`mlflow server` starts one)";

/// Schemes and names of stores that the mlflow package opens itself.
constexpr std::array<std::string_view, 8> kStores = {
    "file", "sqlite", "postgresql", "mysql", "mssql", "databricks", "databricks-uc", "uc"};

bool is_store(const std::string& uri) {
  const std::string scheme = to_lower(uri.substr(0, std::min(uri.find(':'), uri.find('+'))));
  const bool is_path =
      uri.starts_with('/') || uri.starts_with('.') || uri.starts_with('~') || uri == "mlruns";
  return is_path || std::find(kStores.begin(), kStores.end(), scheme) != kStores.end();
}

}  // namespace

std::optional<UriProblem> problem_of_tracking_uri(const std::string& uri) {
  if (is_store(uri)) {
    return UriProblem{
        true, cat("a store that is opened without a server is not in this version; ", kServer)};
  }
  if (uri.find('@') != std::string::npos) {
    return UriProblem{
        false,
        "a user and password do not belong here, where they would be shown: set "
        "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"};
  }
  if (const std::string problem = problem_of_server(uri); !problem.empty()) {
    return UriProblem{false, cat(problem, "; ", kServer)};
  }
  return std::nullopt;
}

MlflowSettings MlflowSettings::from_environment(const Environment& environment,
                                                const MlflowConfig& config) {
  MlflowSettings settings;
  settings.tracking_uri = config.tracking_uri.value_or("");
  if (settings.tracking_uri.empty()) settings.tracking_uri = environment("MLFLOW_TRACKING_URI");
  while (settings.tracking_uri.ends_with('/')) settings.tracking_uri.pop_back();
  settings.token = environment("MLFLOW_TRACKING_TOKEN");
  settings.user = environment("MLFLOW_TRACKING_USERNAME");
  settings.password = environment("MLFLOW_TRACKING_PASSWORD");
  settings.ca_file = environment("MLFLOW_TRACKING_SERVER_CERT_PATH");
  settings.checks_certificates = !is_on(environment, "MLFLOW_TRACKING_INSECURE_TLS");
  settings.run_id = environment("MLFLOW_RUN_ID");
  settings.user_name = environment("LOGNAME");
  if (settings.user_name.empty()) settings.user_name = environment("USER");
  settings.timeout_seconds =
      seconds_in(environment, "MLFLOW_HTTP_REQUEST_TIMEOUT", settings.timeout_seconds);
  return settings;
}

}  // namespace automodel::trackers

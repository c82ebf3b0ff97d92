#include "trackers/mlflow_api.h"

#include "core/error.h"

namespace automodel::trackers {

namespace {

http::HttpOptions options_of(const MlflowSettings& settings) {
  http::HttpOptions options;
  options.bearer_token = settings.token;
  options.user = settings.user;
  options.password = settings.password;
  options.ca_file = settings.ca_file;
  options.checks_certificates = settings.checks_certificates;
  options.stall_seconds = settings.timeout_seconds;
  options.total_seconds = settings.timeout_seconds;
  return options;
}

}  // namespace

MlflowApi::MlflowApi(const MlflowSettings& settings, const std::atomic<bool>* is_cancelled)
    : server_(settings.tracking_uri),
      has_credentials_(!settings.token.empty() || !settings.user.empty()),
      client_(options_of(settings), is_cancelled) {}

ServerAnswer MlflowApi::read(const http::HttpAnswer& answer) const {
  ServerAnswer read = read_answer(answer, server_, "an MLflow server", "tracking_uri");
  if (read.is_done() || !answer.problem.empty()) return read;
  read.code = text_of(read.body, "error_code");
  if (const std::string message = on_a_line(text_of(read.body, "message")); !message.empty()) {
    read.problem += cat(" (", message, ")");
  }
  if (answer.head.status == 401 || answer.head.status == 403) {
    read.problem += has_credentials_ ? ": it does not take the credentials of MLFLOW_TRACKING_*"
                                     : ": it wants credentials; set MLFLOW_TRACKING_TOKEN, or "
                                       "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD";
  }
  return read;
}

ServerAnswer MlflowApi::get(const std::string& path,
                            const std::vector<std::pair<std::string, std::string>>& query) {
  std::string url = cat(server_, "/api/2.0/mlflow/", path);
  char separator = '?';
  for (const auto& [name, value] : query) {
    url += cat(separator, name, "=", replace_all(http::escape_path(value), "/", "%2F"));
    separator = '&';
  }
  return read(client_.get(url));
}

ServerAnswer MlflowApi::post(const std::string& path, const Json& body) {
  return read(client_.post(cat(server_, "/api/2.0/mlflow/", path), body.dump()));
}

}  // namespace automodel::trackers

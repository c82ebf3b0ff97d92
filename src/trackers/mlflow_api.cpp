#include "trackers/mlflow_api.h"

#include "core/error.h"
#include "core/utf8.h"

namespace automodel::trackers {

namespace {

constexpr size_t kLongestMessage = 300;

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

/// The object that an answer is; null when it is none.
Json object_in(const std::string& body) {
  try {
    Json value = Json::parse(body, "answer");
    if (value.is_object()) return value;
  } catch (const InputError&) {
    // Not MLflow's: the caller says so.
  }
  return nullptr;
}

std::string text_of(const Json& object, const char* key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

/// A server's own words, on one line and not too many.
std::string on_a_line(std::string text) {
  text = text.substr(0, text.find('\n'));
  std::erase_if(text, [](char it) { return static_cast<unsigned char>(it) < ' ' || it == '\x7f'; });
  return shortened(text, kLongestMessage);
}

bool is_passing(int status) {
  return status == 408 || status == 429 || status >= 500;
}

}  // namespace

MlflowApi::MlflowApi(const MlflowSettings& settings, const std::atomic<bool>* is_cancelled)
    : server_(settings.tracking_uri),
      has_credentials_(!settings.token.empty() || !settings.user.empty()),
      client_(options_of(settings), is_cancelled) {}

MlflowAnswer MlflowApi::read(const http::HttpAnswer& answer) const {
  using Outcome = Delivery::Outcome;
  const int status = answer.head.status;
  if (!answer.problem.empty()) {
    return {answer.is_final ? Outcome::kRefused : Outcome::kLater, nullptr, "",
            cat(server_, ": ", answer.problem)};
  }
  Json body = object_in(answer.body);
  if (status == 200) {
    if (!body.is_null()) return {Outcome::kDone, std::move(body), "", ""};
    return {Outcome::kLater, nullptr, "", cat(server_, " does not answer as an MLflow server")};
  }
  std::string problem = cat(server_, " answers ", status);
  const std::string message = body.is_null() ? "" : on_a_line(text_of(body, "message"));
  if (!message.empty()) problem += cat(" (", message, ")");
  if (status == 401 || status == 403) {
    problem += has_credentials_ ? ": it does not take the credentials of MLFLOW_TRACKING_*"
                                : ": it wants credentials; set MLFLOW_TRACKING_TOKEN, or "
                                  "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD";
  } else if (status / 100 == 3) {
    problem += cat(", a redirect to '", answer.head.field("location"),
                   "': set tracking_uri to where the server is");
  } else if (body.is_null() && status == 404) {
    problem += ": is tracking_uri an MLflow server?";
  }
  std::string code = body.is_null() ? "" : text_of(body, "error_code");
  return {is_passing(status) ? Outcome::kLater : Outcome::kRefused, std::move(body),
          std::move(code), std::move(problem)};
}

MlflowAnswer MlflowApi::get(const std::string& path,
                            const std::vector<std::pair<std::string, std::string>>& query) {
  std::string url = cat(server_, "/api/2.0/mlflow/", path);
  char separator = '?';
  for (const auto& [name, value] : query) {
    url += cat(separator, name, "=", replace_all(http::escape_path(value), "/", "%2F"));
    separator = '&';
  }
  return read(client_.get(url));
}

MlflowAnswer MlflowApi::post(const std::string& path, const Json& body) {
  return read(client_.post(cat(server_, "/api/2.0/mlflow/", path), body.dump()));
}

}  // namespace automodel::trackers

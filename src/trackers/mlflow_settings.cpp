#include "trackers/mlflow_settings.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/error.h"

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

bool is_host(std::string_view host) {
  if (host.starts_with('[')) return host.ends_with(']') && host.size() > 2;
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
  });
}

/// What is wrong with HOST[:PORT].
std::string problem_of_authority(const std::string& authority) {
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  if (!is_host(std::string_view(authority).substr(0, colon))) return "it names no host";
  if (colon == std::string::npos) return "";
  const auto port = parse_int(std::string_view(authority).substr(colon + 1));
  if (port && *port >= 1 && *port <= 65535) return "";
  return cat("'", authority.substr(colon + 1), "' is no port");
}

bool is_true(const std::string& text) {
  const std::string lower = to_lower(text);
  return lower == "true" || lower == "1" || lower == "yes";
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
  const size_t scheme_end = uri.find("://");
  const std::string scheme = to_lower(uri.substr(0, scheme_end));
  if (scheme_end == std::string::npos || (scheme != "http" && scheme != "https")) {
    return UriProblem{false, cat("'", uri, "' does not begin with http:// or https://; ", kServer)};
  }
  const std::string rest = uri.substr(scheme_end + 3);
  const bool has_space = std::any_of(rest.begin(), rest.end(), [](char c) {
    return static_cast<unsigned char>(c) <= 32 || c == 127;
  });
  const size_t question = rest.find_first_of("?#");
  const std::string problem = problem_of_authority(rest.substr(0, rest.find_first_of("/?#")));
  if (!problem.empty()) return UriProblem{false, cat(problem, "; ", kServer)};
  if (has_space || question != std::string::npos) {
    return UriProblem{
        false, cat("'", uri, "' holds ", has_space ? "white space" : "a query", "; ", kServer)};
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
  settings.checks_certificates = !is_true(environment("MLFLOW_TRACKING_INSECURE_TLS"));
  settings.run_id = environment("MLFLOW_RUN_ID");
  settings.user_name = environment("LOGNAME");
  if (settings.user_name.empty()) settings.user_name = environment("USER");
  if (const std::string text = environment("MLFLOW_HTTP_REQUEST_TIMEOUT"); !text.empty()) {
    const auto seconds = parse_double(text);
    constexpr double kLongest = 86400;
    if (!seconds || !(*seconds > 0 && *seconds <= kLongest)) {
      throw UserError(cat("MLFLOW_HTTP_REQUEST_TIMEOUT takes seconds, found '", text, "'"));
    }
    settings.timeout_seconds = *seconds;
  }
  return settings;
}

}  // namespace automodel::trackers

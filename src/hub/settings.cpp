#include "hub/settings.h"

#include <algorithm>
#include <cstdlib>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

namespace automodel::hub {

namespace {

bool is_true(const std::string& value) {
  const std::string lower = to_lower(value);
  return lower == "1" || lower == "on" || lower == "yes" || lower == "true";
}

std::string first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = environment(name); !value.empty()) return value;
  }
  return "";
}

std::string expand_home(const Environment& environment, std::string path) {
  if (path == "~" || path.starts_with("~/")) path.replace(0, 1, environment("HOME"));
  return path;
}

std::string home_folder(const Environment& environment) {
  if (const std::string home = environment("HF_HOME"); !home.empty()) {
    return expand_home(environment, home);
  }
  std::string caches = environment("XDG_CACHE_HOME");
  if (caches.empty()) caches = path_join(environment("HOME"), ".cache");
  return path_join(expand_home(environment, caches), "huggingface");
}

std::string read_token(const Environment& environment) {
  std::string token = first_of(environment, {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
  if (token.empty()) {
    std::string path = environment("HF_TOKEN_PATH");
    if (path.empty()) path = path_join(home_folder(environment), "token");
    path = expand_home(environment, path);
    if (path_exists(path) && !is_directory(path)) token = read_file(path);
  }
  token = std::string(trim(token));
  const bool is_one_word = std::none_of(token.begin(), token.end(),
                                        [](char c) { return static_cast<unsigned char>(c) <= 32; });
  if (!is_one_word) throw UserError("HF_TOKEN, or the token file, holds more than a token");
  return token;
}

double seconds_of(const Environment& environment, const char* name, double usual) {
  const std::string text = environment(name);
  if (text.empty()) return usual;
  const auto value = parse_double(text);
  if (!value || *value < 0) throw UserError(cat(name, " takes seconds, found '", text, "'"));
  return *value == 0 ? usual : *value;
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
}

std::string cache_folder(const Environment& environment,
                         const std::optional<std::string>& cache_dir) {
  std::string cache = cache_dir.value_or("");
  if (cache.empty()) cache = first_of(environment, {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  if (cache.empty()) cache = path_join(home_folder(environment), "hub");
  return expand_home(environment, cache);
}

std::string copies_folder(const Environment& environment) {
  std::string datasets = expand_home(environment, environment("HF_DATASETS_CACHE"));
  if (datasets.empty()) datasets = path_join(home_folder(environment), "datasets");
  return path_join(datasets, "automodel");
}

Settings Settings::from_environment(const Environment& environment,
                                    const std::optional<std::string>& cache_dir) {
  Settings settings;
  if (const std::string endpoint = environment("HF_ENDPOINT"); !endpoint.empty()) {
    settings.endpoint = endpoint;
    while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
    if (!settings.endpoint.starts_with("https://") && !settings.endpoint.starts_with("http://")) {
      throw UserError(cat("HF_ENDPOINT must begin with https:// or http://, found '", endpoint,
                          "'; the usual one is https://huggingface.co"));
    }
  }
  if (!is_true(environment("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) {
    settings.token = read_token(environment);
  }
  settings.ca_file =
      first_of(environment, {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"});
  settings.cache = cache_folder(environment, cache_dir);
  settings.is_offline = is_true(first_of(environment, {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}));
  settings.connect_seconds = seconds_of(environment, "HF_HUB_ETAG_TIMEOUT", 10);
  settings.stall_seconds = seconds_of(environment, "HF_HUB_DOWNLOAD_TIMEOUT", 10);
  return settings;
}

http::HttpOptions http_options(const Settings& settings) {
  http::HttpOptions options;
  options.bearer_token = settings.token;
  options.ca_file = settings.ca_file;
  options.connect_seconds = settings.connect_seconds;
  options.stall_seconds = settings.stall_seconds;
  options.kept_fields = {"x-repo-commit", "x-linked-etag", "x-linked-size", "x-error-code",
                         "x-error-message"};
  return options;
}

}  // namespace automodel::hub

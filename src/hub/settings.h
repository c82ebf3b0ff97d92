#pragma once

#include <functional>
#include <optional>
#include <string>

#include "http/http_client.h"

namespace automodel::hub {

/// A variable of the environment, "" when it is not set.
using Environment = std::function<std::string(const char* name)>;

/// This process's environment.
Environment process_environment();

/// How the hub is reached. The variables are those of the huggingface_hub package.
struct Settings {
  std::string endpoint = "https://huggingface.co";  ///< HF_ENDPOINT, without a slash at its end
  /// HF_TOKEN, else the file of HF_TOKEN_PATH or HF_HOME/token; "": none, as with
  /// HF_HUB_DISABLE_IMPLICIT_TOKEN.
  std::string token;
  std::string ca_file;      ///< SSL_CERT_FILE, CURL_CA_BUNDLE or REQUESTS_CA_BUNDLE; "": the usual
  std::string cache;        ///< folder with models--org--name
  bool is_offline = false;  ///< HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE
  double connect_seconds = 10;  ///< HF_HUB_ETAG_TIMEOUT
  double stall_seconds = 10;    ///< HF_HUB_DOWNLOAD_TIMEOUT: without a byte for so long, try again
  int num_attempts = 6;         ///< in a row that bring no byte
  double backoff_seconds = 1;   ///< before the second attempt; doubled with each
  double longest_wait_seconds = 600;  ///< a server that asks for more is an error
  int num_parallel = 4;               ///< files that are downloaded at once

  /// `cache_dir` of a recipe replaces the environment's cache.
  static Settings from_environment(const Environment& environment,
                                   const std::optional<std::string>& cache_dir = std::nullopt);
};

/// How the hub is asked: with the token, and its own fields kept.
http::HttpOptions http_options(const Settings& settings);

/// The cache that applies: `cache_dir`, else HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub.
std::string cache_folder(const Environment& environment,
                         const std::optional<std::string>& cache_dir);

/// Where copies of data files are kept that can be read faster: "automodel" in HF_DATASETS_CACHE or
/// HF_HOME/datasets.
std::string copies_folder(const Environment& environment);

}  // namespace automodel::hub

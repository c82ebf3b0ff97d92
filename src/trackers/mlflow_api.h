#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "http/http_client.h"
#include "trackers/mlflow_settings.h"
#include "trackers/server_answer.h"

namespace automodel::trackers {

/// MLflow's REST interface, version 2.0.
class MlflowApi final {
 public:
  /// A request ends when `is_cancelled` becomes true.
  MlflowApi(const MlflowSettings& settings, const std::atomic<bool>* is_cancelled);

  /// `path` such as "runs/get"; names and values of the query are escaped here.
  ServerAnswer get(const std::string& path,
                   const std::vector<std::pair<std::string, std::string>>& query);
  ServerAnswer post(const std::string& path, const Json& body);

 private:
  ServerAnswer read(const http::HttpAnswer& answer) const;

  std::string server_;
  bool has_credentials_;
  http::HttpClient client_;
};

}  // namespace automodel::trackers

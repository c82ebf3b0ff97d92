#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "http/http_client.h"
#include "trackers/mlflow_settings.h"
#include "trackers/tracker.h"

namespace automodel::trackers {

/// What an MLflow server answered.
struct MlflowAnswer {
  Delivery::Outcome outcome = Delivery::Outcome::kDone;
  Json body;         ///< an object
  std::string code;  ///< of a refusal: RESOURCE_DOES_NOT_EXIST and others
  /// Why it is not done, with the server's address; never with a token or password.
  std::string problem;

  bool is_done() const { return outcome == Delivery::Outcome::kDone; }
  Delivery delivery() const { return {outcome, 0, problem}; }
};

/// MLflow's REST interface, version 2.0. What may pass is kLater: no connection, no answer in time,
/// statuses 408, 429 and 5xx, and answers that are not MLflow's. Other statuses are kRefused.
class MlflowApi final {
 public:
  /// A request ends when `is_cancelled` becomes true.
  MlflowApi(const MlflowSettings& settings, const std::atomic<bool>* is_cancelled);

  /// `path` such as "runs/get"; names and values of the query are escaped here.
  MlflowAnswer get(const std::string& path,
                   const std::vector<std::pair<std::string, std::string>>& query);
  MlflowAnswer post(const std::string& path, const Json& body);

 private:
  MlflowAnswer read(const http::HttpAnswer& answer) const;

  std::string server_;
  bool has_credentials_;
  http::HttpClient client_;
};

}  // namespace automodel::trackers

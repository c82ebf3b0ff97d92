#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "support/http_server.h"
#include "support/server_faults.h"

namespace automodel::test {

/// A metric as an MLflow server was told of it.
struct MlflowPoint {
  std::string key;
  std::string value;  ///< JSON
  int64_t step = 0;
  int64_t timestamp = 0;  ///< milliseconds since 1970
};

/// A run of an MLflow server.
struct MlflowServedRun {
  std::string experiment;
  std::string status = "RUNNING";
  std::map<std::string, std::string> tags;
  std::map<std::string, std::string> parameters;
  std::vector<MlflowPoint> metrics;
};

/// The part of MLflow's REST interface that a run uses, with MLflow's limits and refusals, on
/// loopback.
class MlflowServer final : public ServerFaults {
 public:
  MlflowServer();

  std::string address() const { return server_->address(); }
  void demand(const std::string& authorization) { demand_field(authorization); }

  std::map<std::string, MlflowServedRun> runs() const;
  std::map<std::string, std::string> experiments() const;  ///< names by id
  std::vector<HttpRequest> requests() const { return server_->requests(); }

 private:
  HttpReply answer(const HttpRequest& request);
  HttpReply create_run(const Json& body);
  HttpReply update_run(const Json& body);
  HttpReply log_batch(const Json& body);

  std::map<std::string, std::string> experiments_;
  std::map<std::string, MlflowServedRun> runs_;
  std::unique_ptr<HttpServer> server_;  // last: its threads use the others
};

}  // namespace automodel::test

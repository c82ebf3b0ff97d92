#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "support/http_server.h"

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
class MlflowServer final {
 public:
  MlflowServer();

  std::string address() const { return server_->address(); }
  /// The next requests are answered so, one each; without a value as usual.
  void add_faults(const std::vector<HttpReply>& faults);
  /// Every request from now on, until nothing.
  void set_fault(std::optional<HttpReply> fault);
  void demand(const std::string& authorization);

  std::map<std::string, MlflowServedRun> runs() const;
  std::map<std::string, std::string> experiments() const;  ///< names by id
  std::vector<HttpRequest> requests() const { return server_->requests(); }

 private:
  HttpReply answer(const HttpRequest& request);
  HttpReply create_run(const Json& body);
  HttpReply update_run(const Json& body);
  HttpReply log_batch(const Json& body);

  mutable std::mutex mutex_;
  std::deque<HttpReply> faults_;
  std::optional<HttpReply> fault_;
  std::string authorization_;
  std::map<std::string, std::string> experiments_;
  std::map<std::string, MlflowServedRun> runs_;
  std::unique_ptr<HttpServer> server_;  // last: its threads use the others
};

}  // namespace automodel::test

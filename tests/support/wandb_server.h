#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "support/http_server.h"
#include "support/server_faults.h"

namespace automodel::test {

/// A run of a W&B server.
struct WandbServedRun {
  std::string project;
  std::string entity;
  Json variables;  ///< of the request that made it, or was the last to say what it is
  std::vector<Json> rows;
  Json summary;
  bool is_preempting = false;
  std::optional<int64_t> exit_code;  ///< of a run that is complete
  int num_heartbeats = 0;            ///< requests that say nothing else
};

/// The part of W&B's interface that a run uses, on loopback: GraphQL for runs, and the file stream.
/// It takes lines at most behind those that it has, and rows in the order of their steps.
class WandbServer final : public ServerFaults {
 public:
  WandbServer();

  std::string address() const { return server_->address(); }
  /// The only API key that is taken; any, until then.
  void demand(const std::string& api_key);

  std::map<std::string, WandbServedRun> runs() const;  ///< by their ids
  std::vector<HttpRequest> requests() const { return server_->requests(); }

 private:
  HttpReply answer(const HttpRequest& request);
  HttpReply ask(const Json& body);
  HttpReply stream(const std::string& path, const Json& body);

  std::map<std::string, WandbServedRun> runs_;
  std::unique_ptr<HttpServer> server_;  // last: its threads use the others
};

}  // namespace automodel::test

#pragma once

#include <atomic>
#include <string>

#include "core/json.h"
#include "http/http_client.h"
#include "trackers/server_answer.h"
#include "trackers/wandb_settings.h"

namespace automodel::trackers {

/// What of W&B's interface a run needs: GraphQL for the run, the file stream for its records.
class WandbApi final {
 public:
  /// A request ends when `is_cancelled` becomes true.
  WandbApi(const WandbSettings& settings, const std::atomic<bool>* is_cancelled);

  /// The body of the answer is what GraphQL has under `data`.
  ServerAnswer ask(const char* query, const Json& variables);

  /// Lines and the end of a run's files. `body` as the server takes it.
  ServerAnswer stream(const std::string& entity, const std::string& project,
                      const std::string& run_id, const Json& body);

 private:
  ServerAnswer post(const std::string& path, const Json& body);

  std::string server_;
  std::string key_place_;
  http::HttpClient client_;
};

/// What the server has of a run: variables `project`, `entity` and `name`, its id.
extern const char* const kWandbResumeQuery;

/// Makes a run, or says of one what it is now.
extern const char* const kWandbRunMutation;

}  // namespace automodel::trackers

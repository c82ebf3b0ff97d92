#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/reporter.h"
#include "trackers/tracker.h"
#include "trackers/wandb_settings.h"

namespace automodel::trackers {

/// The file in a run's folder that holds the id of its W&B run.
inline constexpr const char* kWandbRunFile = "wandb_run_id";

/// What a W&B run is told once.
struct WandbRun {
  WandbSettings settings;
  std::string folder;        ///< the run's own, where kWandbRunFile is
  bool is_resumed = false;   ///< the run continues from a checkpoint
  std::string default_name;  ///< where nobody says one; "": the server chooses one
  Json values;               ///< of the recipe, by sections
  std::string source;        ///< the recipe's path
  /// The records of a continued run's log: of steps after `last_step` that it does not do again.
  /// Called from the tracker's thread. Throws InputError.
  std::function<std::vector<std::shared_ptr<const Record>>(int64_t last_step)> earlier;
};

/// Sends a run's records to a W&B server: makes a run or goes on in one, sends a row of its history
/// for each step, and says how the run ended. Nothing is asked before start(). Throws UserError
/// where a run is to be continued (WandbResume::kMust) and nothing says which.
std::unique_ptr<Tracker> make_wandb(WandbRun run, std::shared_ptr<Reporter> reporter);

/// Writes them to a new file DIR/wandb/offline-run-TIME-ID/run-ID.wandb, which `wandb sync` sends
/// to a server. Makes it at once: throws InputError "cannot write PATH: reason", and UserError as
/// make_wandb().
std::unique_ptr<Tracker> make_offline_wandb(const WandbRun& run,
                                            const std::shared_ptr<Reporter>& reporter);

}  // namespace automodel::trackers

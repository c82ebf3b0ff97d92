#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/reporter.h"
#include "trackers/wandb.h"

namespace automodel::trackers {

/// The id that a start of a run has on W&B.
struct WandbRunId {
  std::string id;
  bool may_be_there = false;  ///< it may have rows, behind which this start goes on
};

/// The recipe's id or the environment's, else that of the run's folder where the run continues from
/// a checkpoint, else a new one. Throws UserError where a new one is none to go on in
/// (WandbResume::kMust).
WandbRunId wandb_run_id(const WandbRun& run, Reporter& reporter);

/// The records of a run's log after a step; none, after a warning, where it cannot be read.
std::vector<std::shared_ptr<const Record>> earlier_records(const WandbRun& run, int64_t last_step,
                                                           Reporter& reporter);

/// Keeps an id in the run's folder; where that fails a warning says so.
void keep_wandb_run_id(const WandbRun& run, const std::string& id, Reporter& reporter);

/// The name that a run is given; "" where the server chooses one.
std::string wandb_run_name(const WandbRun& run);

/// The recipe's values as texts of JSON has them: numbers that JSON has no word for are texts.
Json wandb_values(const Json& values);

/// The exit code that W&B is told.
int wandb_exit_code(RunEnd end);

}  // namespace automodel::trackers

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "distributed/groups/device_mesh.h"
#include "loggers/progress.h"
#include "recipes/read/recipe.h"
#include "recipes/run/benchmark.h"
#include "recipes/run/expert_balance.h"
#include "recipes/run/host_files.h"
#include "recipes/run/metrics.h"
#include "recipes/run/run_context.h"
#include "recipes/run/session_checkpoint.h"
#include "recipes/run/session_data.h"
#include "recipes/run/session_model.h"
#include "recipes/run/session_records.h"
#include "recipes/run/step_counters.h"
#include "recipes/run/teacher.h"
#include "recipes/run/validation.h"
#include "training/early_stopping.h"
#include "training/signals.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// How the run's ranks wait while others read or write files.
comm::SlowWorkOptions slow_work_options(const Recipe& recipe, Reporter& reporter);

/// The training loop. Its parts are made from the recipe by functions, in upstream's order: mesh,
/// model, data, step. Where kinds of recipes differ, their parts do (session_step.h). Every rank
/// makes one and calls run().
class TrainSession final {
 public:
  TrainSession(const Recipe& recipe, const RunContext& context);

  /// Trains to the end or until a preemption signal. Returns the exit status: kDone or kPreempted.
  ExitCode run();

 private:
  /// The micro-batches of one step, and the data position after them.
  struct StepBatches {
    std::vector<tensor::Batch> batches;
    Json begin;  ///< the position before them, where spikes are acted on; else null
    Json position;
  };

  /// Continues from a checkpoint or loads the first weights, then opens the logs.
  /// Refuses files, which `find` names on each rank, that are others on some host.
  void compare_hosts(const std::function<std::vector<SharedFile>()>& find);
  std::vector<SharedFile> all_data_files() const;
  void start();
  /// After a spike, if the recipe asks for it: goes back to the newest checkpoint, from which the
  /// run goes on with the data after the spike. False where there is none. Every rank calls it.
  bool roll_back(const training::StepResult& result, const StepBatches& taken);
  StepBatches next_batches();
  /// One optimizer step with logging, validation and saving; returns true when the run ends after
  /// it. `has_fault`: this rank has no data to go on with, which ends the run after a save.
  bool run_step(const StepBatches& taken, bool ends_epoch, bool has_fault);
  training::StepResult train(const StepBatches& taken);
  std::vector<std::pair<std::string, double>> validate();
  /// Whether the run ends because of this validation. Every rank calls it.
  bool stops_early(const std::vector<std::pair<std::string, double>>& losses);
  ExitCode run_to_end();
  void save(const SaveRequest& request);
  /// Called after a step: returns the signal that any rank has received, 0 for none, kDataFault
  /// where any has such a fault. In the same message the ranks tell each other how long they worked
  /// without waiting for others.
  int agreed_signal(bool has_fault);
  SessionState state();
  /// How ranks wait while others read or write files.
  comm::SlowWork& slow_work();
  /// Adds an event that ends now to the trace.
  void trace(const std::string& name, std::string_view category, double begin);

  const Recipe& recipe_;
  const RunContext context_;
  training::SignalWatch signals_;
  distributed::DeviceMesh mesh_;
  SessionModel model_;
  std::unique_ptr<Teacher> teacher_;  // null unless the recipe distils
  ExpertBalance balance_;
  SessionData data_;
  training::StepScheduler scheduler_;
  training::TrainStep train_step_;
  Validation validation_;
  SessionCheckpoint checkpoint_;
  StepOperations operations_;
  SessionRecords records_;
  StepCounters counters_;
  std::optional<Benchmark> benchmark_;            // set by run() in a benchmark
  std::optional<loggers::ProgressBar> progress_;  // set by run()
  double begin_seconds_ = 0;                      // when the first step began
  double data_seconds_ = 0;                       // spent on reading batches since the latest step
  /// Where the data that the next rollback leaves out begin: at the newest checkpoint's position,
  /// or behind the data that the last rollback left out.
  Json data_left_out_from_;
  bool is_starting_ = true;  // until the first step of this process has ended
  int64_t num_rollbacks_ = 0;
  double own_seconds_ = 0;  // of the latest step and its batches, without waits for other ranks
  int stopped_by_ = 0;      // the signal that ended the run before its last step
  std::optional<training::EarlyStopping> early_stopping_;  // if the recipe asks for it
};

}  // namespace automodel::recipes

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "distributed/groups/device_mesh.h"
#include "loggers/progress.h"
#include "models/flops.h"
#include "recipes/read/recipe.h"
#include "recipes/run/benchmark.h"
#include "recipes/run/data_tally.h"
#include "recipes/run/expert_balance.h"
#include "recipes/run/metrics.h"
#include "recipes/run/run_advice.h"
#include "recipes/run/run_context.h"
#include "recipes/run/run_log.h"
#include "recipes/run/run_plan.h"
#include "recipes/run/session_checkpoint.h"
#include "recipes/run/session_data.h"
#include "recipes/run/session_model.h"
#include "recipes/run/teacher.h"
#include "recipes/run/validation.h"
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
  struct Group {
    std::vector<tensor::Batch> batches;
    Json begin;  ///< the position before them, where spikes are acted on; else null
    Json position;
  };

  /// Continues from a checkpoint or loads the first weights, then opens the logs.
  void start();
  /// Writes run.json, and keeps the one of the run that this one continues.
  void describe_run();
  /// Adds the plan to the run's record, if it is made within so many seconds.
  bool add_plan(double patience_seconds);
  void write_record();
  /// Adds an event at this step, which took the seconds since `begin`.
  void record(std::string_view event, double begin, Json fields = Json::object());
  /// Adds an event at this step.
  void note(std::string_view event, Json fields);
  /// Records what rank 0 holds of its memory.
  void note_memory();
  /// Records what rank 0 has trained on, if that is more than when it was last recorded.
  void note_data();
  /// Records the load of experts once in a while, and has it looked at. All ranks call it.
  void note_expert_load();
  /// Records what rank 0 knows of a step beside its numbers. All ranks call it.
  void note_step(const Group& group);
  /// Records what is known only at the end.
  void end_records();
  /// The times of a step, in its record.
  void add_times(const training::StepResult& result, double waited_seconds, Json& record) const;
  /// Records a step that goes on with a loss or norm that is not finite.
  void record_non_finite(const training::StepResult& result);
  /// After the first step of this process: ends the phases of the start, and says and records them
  /// if asked to.
  void say_timings(const training::StepResult& result);
  /// Has the numbers of a step looked at.
  void advise(const training::StepResult& result, double tokens_per_second);
  /// Records a step whose update was left out, with its batches' place in the data.
  void record_skipped(const training::StepResult& result, const Group& group);
  /// After a spike, if the recipe asks for it: goes back to the newest checkpoint, from which the
  /// run goes on with the data after the spike. False where there is none. Every rank calls it.
  bool roll_back(const training::StepResult& result, const Group& group);
  /// Writes the records of steps from scheduler_.step() on; those that are there are dropped when
  /// it is `is_resumed`, set aside when not.
  void open_log(bool is_resumed);
  Group next_group();
  /// One optimizer step with logging, validation and saving; returns true when the run ends after
  /// it.
  bool run_step(const Group& group, bool ends_epoch);
  training::StepResult train(const Group& group);
  std::vector<std::pair<std::string, double>> validate();
  ExitCode run_to_end();
  /// Says why a run that had finished does nothing when it is started again, and what would make
  /// it train.
  void say_it_is_finished();
  void save(const SaveRequest& request);
  void record_save(const std::optional<FinishedSave>& save);
  /// Has the trackers take what is left; the other ranks wait.
  void end_trackers();
  /// After a step: the signal that any rank has received, 0 for none. The ranks tell each other on
  /// the way how long they worked by themselves.
  int agreed_signal();
  SessionState state();
  /// How ranks wait while others read or write files.
  comm::SlowWork& slow_work();
  /// Floating-point operations of a step on all ranks; assumes that every rank's batches have the
  /// shapes of this rank's.
  double flops_of(const Group& group) const;
  /// The share of flops_of() that is computed: below 1 in a benchmark of adapters, whose frozen
  /// weights have no gradients. Upstream counts so only there.
  double share_of_operations() const;
  /// Adds an event that ends now to the trace.
  void trace(const std::string& name, std::string_view category, double begin);

  const Recipe& recipe_;
  RunContext context_;
  std::optional<RunPlan> plan_;  // on rank 0, until run.json has it
  training::SignalWatch signals_;
  distributed::DeviceMesh mesh_;
  SessionModel model_;
  std::unique_ptr<Teacher> teacher_;  // of a student
  ExpertBalance balance_;
  SessionData data_;
  training::StepScheduler scheduler_;
  training::TrainStep train_step_;
  Validation validation_;
  SessionCheckpoint checkpoint_;
  StepMeter meter_;
  RunAdvice advice_;
  DataTally tally_;
  models::FlopCount count_flops_;
  std::optional<RunLog> log_;                     // set by start(), except in a benchmark
  std::optional<Benchmark> benchmark_;            // set by run() in a benchmark
  std::optional<loggers::ProgressBar> progress_;  // set by run()
  double begin_seconds_ = 0;                      // when the first step began
  double data_seconds_ = 0;  // that the batches since the latest step took to come
  Json data_left_out_from_;  // by a rollback: the checkpoint's position, or the last spike's end
  std::optional<Json> earlier_record_;  // of the run that this one continues
  bool has_noted_memory_ = false;
  int64_t num_noted_sequences_ = 0;
  int64_t num_rollbacks_ = 0;
  double own_seconds_ = 0;  // of these and the latest step: without waits for other ranks
  int stopped_by_ = 0;      // the signal that ended the run before its last step
};

}  // namespace automodel::recipes

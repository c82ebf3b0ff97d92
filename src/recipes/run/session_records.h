#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/watch/slow_work.h"
#include "loggers/progress.h"
#include "recipes/read/recipe.h"
#include "recipes/records/data_tally.h"
#include "recipes/records/run_advice.h"
#include "recipes/records/run_log.h"
#include "recipes/run/expert_balance.h"
#include "recipes/run/metrics.h"
#include "recipes/run/run_context.h"
#include "recipes/run/run_record.h"
#include "recipes/run/session_checkpoint.h"
#include "recipes/run/session_model.h"
#include "training/step_scheduler.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// A step that has ended, before the scheduler goes on to the next.
struct EndedStep {
  const training::StepResult& result;
  const std::vector<tensor::Batch>& batches;
  double flops = 0;         ///< operations on all ranks
  double data_seconds = 0;  ///< spent on reading its batches
  double wait_seconds = 0;  ///< spent on waiting for other ranks
};

/// The data that no update was made of: the states of the training stream before and after them.
struct DataRange {
  Json from;
  Json until;
};

/// The return of a run to a checkpoint.
struct Rollback {
  int64_t step = 0;    ///< at which the run went back
  int64_t number = 0;  ///< counts the run's rollbacks from 1
  std::string checkpoint;
  double begin_seconds = 0;
};

/// Why a step's update was left out, as a text.
std::string spike_text(const training::StepResult& result, const ClipSection& clip);

/// What a session leaves behind beside checkpoints: run.json, the logs of its steps, events, and
/// what trackers, advice and the progress bar are shown of them. Events tell the step and epoch of
/// the scheduler. Rank 0 writes. A benchmark has no records but `start`, `load` and `end`.
class SessionRecords final {
 public:
  /// `context` and `slow_work` outlive this object.
  SessionRecords(const RunContext& context, const RecordedParts& parts, comm::SlowWork& slow_work);

  /// Writes run.json, and keeps the one of the run that this one continues; then the event `start`.
  /// All ranks call it.
  void start();
  /// Records that the session has continued from a checkpoint, which it began to read at `begin`.
  void resumed(const std::string& checkpoint, double begin);
  /// Records that the first weights were loaded from the folder `source`, or drawn ("").
  void loaded(const std::string& source, double begin);
  /// Opens logs, events and trackers, in which a run that is resumed goes on. All ranks call it.
  void open(bool is_resumed);
  /// Drops the records of the steps that will be done again: those from the scheduler's step on.
  void cut_log();

  /// Lets the next step's time begin now, so that validation and saving do not count in it.
  void restart_clock() { meter_.restart(); }
  /// Records a step of training; returns what the progress bar shows of it. All ranks call it.
  loggers::StepNumbers train(const EndedStep& step);
  /// Hands on how long each rank worked on the latest step without waiting for others.
  void ranks_worked(std::vector<double> seconds);
  /// Called after the first step of this process: ends the phases of its start; if the run is asked
  /// for timings, prints and records them.
  void end_start(const training::StepResult& result);
  /// Records a validation set that was just evaluated. All ranks call it.
  void validation(const std::string& set, const training::TrainStep::Evaluation& result);
  /// Records the losses of all validation sets, of which the first was begun at `begin`.
  void validated(const std::vector<std::pair<std::string, double>>& losses, double begin);
  /// Records a save that has ended, if one has.
  void saved(const std::optional<FinishedSave>& save);
  /// Records a step whose update was left out.
  void skipped(const training::StepResult& result, DataRange data);
  /// Records that the run went back after the step with `result`; it goes on with the scheduler's
  /// step.
  void rolled_back(const training::StepResult& result, const Rollback& rollback, DataRange data);
  /// Records that the validation loss ends the run after this step.
  void stopped_early(const std::string& why);

  /// Waits until the trackers have sent what is left, on all ranks, and records what is known only
  /// at the end. All ranks call it.
  void close(int stopped_by);
  /// Records the last event of a run whose first step began at `begin`. `stopped_by`: the signal
  /// that stopped it; 0: none.
  void end(int stopped_by, double begin);

 private:
  bool is_writing() const { return context_.group.rank() == 0 && !recipe_.benchmark; }
  /// Adds the plan to the run's record, if it is ready within `patience_seconds`.
  bool add_plan(double patience_seconds);
  void write_record();
  /// Writes the records of steps from `first_step` on; those that are there are dropped when it is
  /// `is_resumed`, set aside when not.
  void open_log(int64_t first_step, bool is_resumed);
  /// The names of the sets of which records are written.
  std::vector<std::string> validation_sets() const;
  /// Adds an event that took the seconds since `begin`.
  void timed_event(std::string_view name, double begin, Json fields);
  void event(std::string_view name, Json fields);
  /// Records what rank 0's memory holds.
  void note_memory();
  /// Records what rank 0 has trained on, if that is more than when it was last recorded.
  void note_data();
  /// Records the load of experts, at most about a hundred times a run, and shows it to the advice.
  /// All ranks call it.
  void note_expert_load();
  /// Records that a step's loss or norm is not finite while the run goes on.
  void note_non_finite(const training::StepResult& result);
  void advise(const EndedStep& step, double tokens_per_second);

  const RunContext& context_;
  RecordedParts parts_;
  const Recipe& recipe_;
  const training::StepScheduler& scheduler_;
  comm::SlowWork& slow_work_;
  Json record_;                  // what run.json holds
  std::optional<Json> earlier_;  // run.json of the run that this one continues
  std::optional<RunLog> log_;    // from open() on, except in a benchmark
  StepMeter meter_;
  RunAdvice advice_;
  DataTally tally_;
  bool has_noted_memory_ = false;
  int64_t num_noted_sequences_ = 0;
};

}  // namespace automodel::recipes

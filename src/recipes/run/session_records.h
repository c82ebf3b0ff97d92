#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/slow_work.h"
#include "loggers/progress.h"
#include "recipes/read/recipe.h"
#include "recipes/run/data_tally.h"
#include "recipes/run/expert_balance.h"
#include "recipes/run/metrics.h"
#include "recipes/run/run_advice.h"
#include "recipes/run/run_context.h"
#include "recipes/run/run_log.h"
#include "recipes/run/run_record.h"
#include "recipes/run/session_checkpoint.h"
#include "recipes/run/session_model.h"
#include "training/step_scheduler.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// What is recorded of. Everything here outlives the records.
struct RecordedSession {
  const RunContext& context;
  RecordedParts parts;
  const training::TrainStep& train_step;
  ExpertBalance& balance;
};

/// A step that has ended, before the scheduler goes on to the next.
struct EndedStep {
  const training::StepResult& result;
  const std::vector<tensor::Batch>& batches;
  double flops = 0;         ///< operations on all ranks
  double data_seconds = 0;  ///< that its batches took to come
  double wait_seconds = 0;  ///< for other ranks
};

/// The data that an update left out came from: the stream's states before and after.
struct DataRange {
  Json from;
  Json until;
};

/// A run that has gone back to a checkpoint.
struct Rollback {
  int64_t step = 0;  ///< that it went back from
  int64_t number = 0;
  std::string checkpoint;
  double begin_seconds = 0;
};

/// What made a step's update be left out, in words.
std::string spike_text(const training::StepResult& result, const ClipSection& clip);

/// What a session leaves behind beside checkpoints: run.json, the logs of its steps, events, and
/// what trackers, advice and the progress bar are shown of them. Events tell the step and epoch of
/// the scheduler. Rank 0 writes. A benchmark has no records but `start`, `load` and `end`.
class SessionRecords final {
 public:
  SessionRecords(const RecordedSession& session, comm::SlowWork& slow_work);

  /// Writes run.json, and keeps the one of the run that this one continues; then the event `start`.
  /// All ranks call it.
  void start();
  /// The session has continued from a checkpoint, which it began to read at `begin`.
  void resumed(const std::string& checkpoint, double begin);
  /// First weights were loaded from a folder, or drawn, "".
  void loaded(const std::string& source, double begin);
  /// Opens logs, events and trackers, in which a run that is resumed goes on. All ranks call it.
  void open(bool is_resumed);
  /// Drops the records of steps that are done again, from the scheduler's on.
  void cut_log();

  /// Validation, saving and waiting do not count in the next step's time.
  void restart_clock() { meter_.restart(); }
  /// A step of training; returns what the progress bar shows of it. All ranks call it.
  loggers::StepNumbers train(const EndedStep& step);
  /// How long each rank worked by itself on the latest step.
  void ranks_worked(std::vector<double> seconds);
  /// After the first step of this process: ends the phases of the start, and says and records them
  /// if asked to.
  void end_start(const training::StepResult& result);
  /// A validation set that was just evaluated. All ranks call it.
  void validation(const std::string& set, const training::TrainStep::Evaluation& result);
  /// All sets, of which the first was begun at `begin`.
  void validated(const std::vector<std::pair<std::string, double>>& losses, double begin);
  void saved(const FinishedSave& save);
  /// A step whose update was left out.
  void skipped(const training::StepResult& result, DataRange data);
  /// A step after which the run went back; it goes on with the scheduler's step.
  void rolled_back(const training::StepResult& result, const Rollback& rollback, DataRange data);

  /// Has the trackers take what is left, for which the other ranks wait, and records what is known
  /// only at the end. All ranks call it.
  void close(int stopped_by);
  /// The last event of a run whose first step began at `begin`; 0: no signal stopped it.
  void end(int stopped_by, double begin);

 private:
  bool is_writing() const { return context_.group.rank() == 0 && !recipe_.benchmark; }
  /// Adds the plan to the run's record, if it is made within so many seconds.
  bool add_plan(double patience_seconds);
  void write_record();
  /// Writes the records of steps from `first_step` on; those that are there are dropped when it is
  /// `is_resumed`, set aside when not.
  void open_log(int64_t first_step, bool is_resumed);
  /// Adds an event that took the seconds since `begin`.
  void timed_event(std::string_view name, double begin, Json fields);
  void event(std::string_view name, Json fields);
  /// What rank 0 holds of its memory.
  void note_memory();
  /// What rank 0 has trained on, if that is more than when it was last recorded.
  void note_data();
  /// The load of experts, once in a while, and has it looked at. All ranks call it.
  void note_expert_load();
  /// A step that goes on with a loss or norm that is not finite.
  void note_non_finite(const training::StepResult& result);
  void advise(const EndedStep& step, double tokens_per_second);

  const RunContext& context_;
  RecordedParts parts_;
  const Recipe& recipe_;
  const training::StepScheduler& scheduler_;
  const training::TrainStep& train_step_;
  ExpertBalance& balance_;
  comm::SlowWork& slow_work_;
  Json record_;                  // run.json's
  std::optional<Json> earlier_;  // run.json of the run that this one continues
  std::optional<RunLog> log_;    // from open() on, except in a benchmark
  StepMeter meter_;
  RunAdvice advice_;
  DataTally tally_;
  bool has_noted_memory_ = false;
  int64_t num_noted_sequences_ = 0;
};

}  // namespace automodel::recipes

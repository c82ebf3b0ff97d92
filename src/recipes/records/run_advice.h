#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "core/reporter.h"
#include "loggers/advice.h"
#include "loggers/run_events.h"
#include "moe/load_balance.h"

namespace automodel::recipes {

/// When a run writes checkpoints, and how many of them it keeps.
struct SaveSchedule {
  int64_t max_steps = 0;                ///< the run saves after the last of these steps
  int64_t interval = 1;                 ///< and after every so many steps
  std::optional<int64_t> epoch_length;  ///< set: also after every so many steps
  std::optional<int64_t> most_kept;     ///< absent: all
};

/// How many more checkpoints will come to lie in the run's folder after the one of `step`, beside
/// the `num_kept` that lie there: one more than are kept, since the oldest goes last.
int64_t num_saves_to_come(const SaveSchedule& plan, int64_t step, int64_t num_kept);

/// Shows an Adviser what a run records, and hands on what it says: a line on the console and an
/// event `advice` each. On rank 0; on other ranks it does nothing.
class RunAdvice final {
 public:
  /// `console` and `events` outlive this object. `console` must not add events by itself.
  RunAdvice(Reporter& console, loggers::RunEvents& events, bool is_watching)
      : console_(console), events_(events), is_watching_(is_watching) {}

  /// Shows the adviser how a step went.
  void after_step(const loggers::StepFacts& facts);

  /// Shows the adviser the loads of layers with experts, summed over `num_steps` steps up to
  /// `step`.
  void after_routing(int64_t step, const std::vector<moe::LayerLoad>& loads, int64_t num_steps);

  /// Shows the adviser how long each rank worked on a step without waiting for others.
  void after_times(const loggers::RankTimes& times);

  /// Measures on a thread how much of the disk the checkpoint `folder`, written at `step`, takes.
  /// The next call that finds the thread done shows the result to the adviser.
  void after_save(const std::string& folder, int64_t step, const SaveSchedule& plan);

  /// Waits for after_save()'s thread and shows its result to the adviser. Called at a run's end.
  void finish();

 private:
  void say(const loggers::Advice& advice, int64_t step);
  void tell_of_disk();

  Reporter& console_;
  loggers::RunEvents& events_;
  bool is_watching_;
  loggers::Adviser adviser_;
  int64_t saved_step_ = 0;
  std::future<std::optional<loggers::DiskFacts>> disk_;
};

}  // namespace automodel::recipes

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

/// When a run saves, and what it keeps.
struct SavePlan {
  int64_t max_steps = 0;  ///< after the last of them it saves
  int64_t interval = 1;
  std::optional<int64_t> epoch_length;  ///< set: it saves after every so many steps too
  std::optional<int64_t> most_kept;
};

/// How many more checkpoints will come to lie in the run's folder after the one of `step`, beside
/// the `num_kept` that lie there: one more than are kept, since the oldest goes last.
int64_t num_saves_to_come(const SavePlan& plan, int64_t step, int64_t num_kept);

/// Shows an Adviser what a run records, and hands on what it says: a line on the console and an
/// event `advice` each. On rank 0; on other ranks it does nothing.
class RunAdvice final {
 public:
  /// Both outlive this object. `console` records nothing by itself.
  RunAdvice(Reporter& console, loggers::RunEvents& events, bool is_watching)
      : console_(console), events_(events), is_watching_(is_watching) {}

  /// How a step went.
  void after_step(const loggers::StepFacts& facts);

  /// The loads of layers with experts over some steps, up to `step`.
  void after_routing(int64_t step, const std::vector<moe::LayerLoad>& loads, int64_t num_steps);

  /// How long each rank worked on a step by itself.
  void after_times(const loggers::RankTimes& times);

  /// A checkpoint's folder that was written at `step`. It is looked through on a thread; what comes
  /// of that is told by the next call that finds it done.
  void after_save(const std::string& folder, int64_t step, const SavePlan& plan);

  /// Waits for what is under way, and tells it. Called at the end of a run.
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

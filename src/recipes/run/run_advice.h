#pragma once

#include <cstdint>
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

  /// How a step went, with the loads of this rank's layers with experts.
  void after_step(const loggers::StepFacts& facts, const std::vector<moe::LayerLoad>& loads);

  /// How long each rank worked on a step by itself.
  void after_times(const loggers::RankTimes& times);

  /// A checkpoint's folder that was written at `step`.
  void after_save(const std::string& folder, int64_t step, const SavePlan& plan);

 private:
  void say(const loggers::Advice& advice, int64_t step);

  Reporter& console_;
  loggers::RunEvents& events_;
  bool is_watching_;
  loggers::Adviser adviser_;
};

}  // namespace automodel::recipes

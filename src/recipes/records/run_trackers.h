#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/reporter.h"
#include "loggers/run_events.h"
#include "recipes/read/recipe.h"
#include "trackers/background_tracker.h"
#include "training/gradient_histogram.h"

namespace automodel::recipes {

/// What trackers are told of a run before its first record.
struct TrackedRun {
  const Recipe& recipe;
  const Json& record;              ///< run.json's
  const std::string& recipe_text;  ///< YAML, without values of the environment
  std::vector<std::string> validation_sets;
  int64_t first_step = 0;
  bool is_resumed = false;
};

/// The trackers that a recipe asks for, on rank 0; on other ranks it does nothing. A call hands a
/// record over within microseconds, however long the trackers take with it.
class RunTrackers final {
 public:
  /// `reporter` and `events` outlive this object.
  RunTrackers(Reporter& reporter, loggers::RunEvents& events, bool is_tracking)
      : reporter_(reporter), events_(events), is_tracking_(is_tracking) {}

  /// Starts the trackers. Throws InputError where a file cannot be written, UserError for a wrong
  /// environment.
  void start(const TrackedRun& run);

  void train(const Json& record);
  void validation(const std::string& set, const Json& record);
  /// Histograms of a step's gradients, for trackers that show them.
  void gradients(int64_t step, const std::vector<training::LayerHistogram>& layers);

  /// Waits for what is left to be sent, within limits, and says what was lost: to the reporter, and
  /// as an event of each tracker. Later calls do nothing.
  void end(trackers::RunEnd how);

 private:
  struct Running {
    std::unique_ptr<trackers::BackgroundTracker> tracker;
    int64_t every_steps = 1;  ///< steps from one training record that it gets to the next
    bool shows_histograms = false;
  };

  Reporter& reporter_;
  loggers::RunEvents& events_;
  bool is_tracking_;
  std::vector<Running> running_;
};

}  // namespace automodel::recipes

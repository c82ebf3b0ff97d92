#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "distributed/groups/device_mesh.h"
#include "recipes/read/recipe.h"
#include "recipes/run/session_model.h"
#include "training/step_scheduler.h"

namespace automodel::recipes {

/// The lines of the log that say what a run is about to do.
std::vector<std::string> session_summary(const Recipe& recipe, const SessionModel& model,
                                         const training::StepScheduler& scheduler,
                                         const distributed::DeviceMesh& mesh, int world_size);

/// Says that a run ends before the recipe's max_steps by a num_epochs that the recipe does not say;
/// "" if it does not.
std::string early_end_text(const Recipe& recipe, const training::StepScheduler& scheduler);

/// Says why a run that had finished does nothing when it is started again, and what would make it
/// train.
std::string finished_text(const Recipe& recipe, const training::StepScheduler& scheduler);

/// What a run has done that came to its end, and where the result is; `checkpoint`: the last one's
/// folder, "" without one.
std::string done_text(const Recipe& recipe, int64_t num_steps, double seconds,
                      const std::string& checkpoint);

}  // namespace automodel::recipes

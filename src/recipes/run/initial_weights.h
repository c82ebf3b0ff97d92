#pragma once

#include "comm/slow_work.h"
#include "core/reporter.h"
#include "recipes/read/recipe.h"
#include "recipes/run/session_model.h"

namespace automodel::recipes {

/// Gives a model that no checkpoint continues its first weights: those of the recipe's folder, or
/// drawn ones. Every rank calls it.
void load_initial_weights(const Recipe& recipe, const SessionModel& model,
                          comm::SlowWork& slow_work, Reporter& reporter);

}  // namespace automodel::recipes

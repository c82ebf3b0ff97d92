#pragma once

#include "comm/slow_work.h"
#include "core/reporter.h"
#include "recipes/read/recipe.h"
#include "recipes/run/session_model.h"

namespace automodel::recipes {

/// Gives a model its first weights: those of the recipe's folder, or drawn ones. A run that
/// continues from a checkpoint (`is_resumed`) calls it only for the base of adapters, which have
/// theirs already. Every rank calls it.
void load_initial_weights(const Recipe& recipe, const SessionModel& model, bool is_resumed,
                          comm::SlowWork& slow_work, Reporter& reporter);

}  // namespace automodel::recipes

#pragma once

#include "comm/watch/slow_work.h"
#include "core/reporter.h"
#include "recipes/read/recipe.h"
#include "recipes/run/session_model.h"

namespace automodel::recipes {

/// Gives a model its first weights: the recipe's folder's, or random ones. A run that continues
/// from a checkpoint (`is_resumed`) calls it only to read the base model under adapters, whose own
/// values come from the checkpoint. Every rank calls it.
void load_initial_weights(const Recipe& recipe, const SessionModel& model, bool is_resumed,
                          comm::SlowWork& slow_work, Reporter& reporter);

}  // namespace automodel::recipes

#pragma once

#include "config/diagnostic.h"
#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Reads where a run's numbers go besides its own files: `tensorboard`, `mlflow` and
/// `wandb`. A server is not asked.
void read_trackers(const config::Node& root, Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

#pragma once

#include "config/diagnostic.h"
#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Reads `benchmark` of a benchmark recipe into `recipe`, whose model is read already, and sets
/// what such a recipe leaves to the model and the step scheduler: vocab_size and batch_size of
/// random data in `root`. Warns of sections that a benchmark does not act on.
void read_benchmark(config::Node& root, Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

#pragma once

#include "config/diagnostic.h"
#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Reads `benchmark` of a benchmark recipe into `recipe`, whose model has been read, and fills in
/// the vocab_size and batch_size of random data in `root` from the model and the step scheduler.
/// Warns of sections that have no effect in a benchmark.
void read_benchmark(config::Node& root, Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

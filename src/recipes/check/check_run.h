#pragma once

#include <cstdint>

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// How deeply check_run() looks.
struct CheckOptions {
  int64_t world_size = 1;
  bool loads_tokenizers = true;  ///< and looks at weights and checkpoints; a run does it anyway
  bool looks_at_data = true;     ///< files of datasets; tokenizers only with them
};

/// What is wrong with a recipe for a number of ranks, without weights: sizes, batch divisibility,
/// files, columns, tokenizer, model family, head counts; and what this version does not have.
void check_run(const Recipe& recipe, const CheckOptions& options, config::Diagnostics& diagnostics);

/// The fewest ranks that the recipe's mesh and batch sizes fit.
int64_t fitting_world_size(const Recipe& recipe);

}  // namespace automodel::recipes

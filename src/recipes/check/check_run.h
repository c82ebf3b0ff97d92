#pragma once

#include <cstdint>

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// How much check_run() looks at.
struct CheckOptions {
  int64_t world_size = 1;
  /// Whether a person or a launcher said so. Otherwise a run may have other numbers of ranks, and
  /// nothing is said of what these alone leave without effect.
  bool is_world_size_given = true;
  bool loads_tokenizers = true;  ///< and looks at weights; a run reads them anyway
  bool looks_at_data = true;     ///< and at checkpoints; without it no tokenizers either
};

/// Finds what is wrong with a recipe for a number of ranks, without loading weights: sizes, batch
/// divisibility, files, columns, tokenizer, model family, head counts; and what this version does
/// not have.
void check_run(const Recipe& recipe, const CheckOptions& options, config::Diagnostics& diagnostics);

/// The fewest ranks that the recipe's mesh and batch sizes fit; when no number up to 1024 replicas
/// fits both, the fewest that fit the mesh, else one replica.
int64_t fitting_world_size(const Recipe& recipe);

}  // namespace automodel::recipes

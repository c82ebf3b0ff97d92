#pragma once

#include <cstdint>

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Finds what prevents the recipe's strategy from being set up on its model, and options that it
/// would ignore silently: unit classes, initialisation, offloading (part of check_run).
void check_strategy(const Recipe& recipe, int64_t world_size, config::Diagnostics& diagnostics);

/// Warns of options of the strategy that would change numbers on several data-parallel ranks and
/// change none on one, where nothing is sharded.
void check_one_rank(const Recipe& recipe, int64_t world_size, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

#pragma once

#include <cstdint>

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Finds what prevents the recipe's strategy from being set up on its model: unit classes,
/// initialisation (part of check_run).
void check_strategy(const Recipe& recipe, config::Diagnostics& diagnostics);

/// Warns of options of the strategy that act on several data-parallel ranks and do nothing on one,
/// where nothing is sharded: offloading, and dtypes that are not those of the stored weights.
void check_one_rank(const Recipe& recipe, int64_t world_size, config::Diagnostics& diagnostics);

/// Whether several ranks share what the strategy spreads: data-parallel, context-parallel or
/// expert-parallel ones of `world_size`.
bool has_several_sharers(const distributed::DistributedSetup& setup, int64_t world_size);

/// Whether the model is known to have experts.
bool has_experts(const Recipe& recipe);

}  // namespace automodel::recipes

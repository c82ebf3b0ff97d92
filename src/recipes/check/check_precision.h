#pragma once

#include <cstdint>
#include <string_view>

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Finds what prevents layers from computing as the mixed-precision policy says (part of
/// check_run).
void check_precision(const Recipe& recipe, int64_t world_size, config::Diagnostics& diagnostics,
                     std::string_view whose = "");

/// Tells of master_weight_bits of FlashAdamW beside trained parameters that lack no bits (part of
/// check_run).
void check_weight_bits(const Recipe& recipe, int64_t world_size, config::Diagnostics& diagnostics);

/// Warns of an eps that is too small for averages in float16, most of whose squares are 0.
void check_eps(const Recipe& recipe, int64_t world_size, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

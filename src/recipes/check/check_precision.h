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

}  // namespace automodel::recipes

#pragma once

#include <cstdint>

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Finds mistakes in the section `tool_call_eval` on `num_ranks` ranks, and what is not built
/// together with it. Its data are checked with the data sets.
void check_tool_calls(const Recipe& recipe, int64_t num_ranks, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

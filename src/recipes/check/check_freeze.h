#pragma once

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Finds mistakes in the section `freeze_config`, and says where it has no effect.
void check_freeze(const Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

#pragma once

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Finds mistakes in the section `qat`, what is not built together with it, and the layers that it
/// leaves as they are.
void check_qat(const Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

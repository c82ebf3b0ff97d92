#pragma once

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// What keeps a recipe's adapters from being trained: the `peft` section against the model, the
/// mesh and the adapter that it begins with (part of check_run).
void check_peft(const Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

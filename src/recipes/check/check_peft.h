#pragma once

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Checks that adapters can be trained: the `peft` section against the model, the mesh and the
/// adapter that training begins with (part of check_run).
void check_peft(const Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

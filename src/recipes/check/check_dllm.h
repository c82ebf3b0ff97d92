#pragma once

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Finds what prevents a recipe that trains by diffusion, or its model, from running (part of
/// check_run).
void check_dllm(const Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

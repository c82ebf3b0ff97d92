#pragma once

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// What is wrong with keys that name tensors of the model, and with the names, shapes and dtypes of
/// the folder's weights (part of check_run).
void check_built_model(const Recipe& recipe, bool looks_at_weights,
                       config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

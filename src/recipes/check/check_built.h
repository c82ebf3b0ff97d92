#pragma once

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Checks the keys that name tensors against the model, and the names, shapes and dtypes of the
/// folder's weights (part of check_run).
void check_built_model(const Recipe& recipe, bool looks_at_weights,
                       config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

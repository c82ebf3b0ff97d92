#pragma once

#include "config/diagnostic.h"
#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Reads every section of a recipe and adds all findings to `diagnostics`. Parts with errors keep
/// their defaults, so callers must stop when there are errors.
Recipe read_recipe(const config::Node& root, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

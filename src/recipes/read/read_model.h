#pragma once

#include "config/diagnostic.h"
#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Reads the `model` section (part of read_recipe).
ModelPlan read_model(const config::Node& section, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

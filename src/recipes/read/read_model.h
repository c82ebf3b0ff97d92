#pragma once

#include <cstdint>

#include "config/diagnostic.h"
#include "config/node.h"
#include "config/registry.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Reads the `model` section (part of read_recipe).
ModelRecipe read_model(const config::Node& section, config::Diagnostics& diagnostics);

/// The vocabulary that a model's configuration names; 0 when the configuration is not here.
int64_t vocabulary_of(const ModelRecipe& model);

}  // namespace automodel::recipes

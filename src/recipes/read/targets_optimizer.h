#pragma once

#include <functional>

#include "config/registry.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

using OptimizerMaker =
    std::function<OptimizerRecipe(const config::Target& target, config::Diagnostics& diagnostics)>;

/// The optimizers that a recipe may name, by their classes.
config::TargetRegistry<OptimizerMaker> optimizer_targets();

/// Reads the `optimizer` section (part of read_recipe).
OptimizerRecipe read_optimizer(const config::Node& node, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

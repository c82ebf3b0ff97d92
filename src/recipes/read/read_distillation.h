#pragma once

#include <string>
#include <vector>

#include "config/diagnostic.h"
#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Top-level keys and sections of distillation.
const std::vector<std::string>& distillation_keys();

/// Reads them into recipe.distillation where the recipe's class distils; elsewhere they are unknown
/// keys (part of read_recipe). The other sections were read before.
void read_distillation(const config::Node& root, Recipe& recipe, config::Diagnostics& diagnostics);

/// The teacher as a recipe of its own, for all that builds, checks, plans or loads a model: the
/// student's mesh and strategy, and nothing that trains. Its root has the section `model` where the
/// recipe has `teacher_model`, and places stay. `recipe` distils.
Recipe teacher_recipe(const Recipe& recipe);

}  // namespace automodel::recipes

#pragma once

#include <string>

#include "core/json.h"
#include "recipes/plan/recipe_plan.h"

namespace automodel::recipes {

/// For people.
std::string plan_text(const RecipePlan& plan);
/// For programs; sizes are bytes of one rank.
Json plan_json(const RecipePlan& plan);

}  // namespace automodel::recipes

#pragma once

#include <string>

#include "core/json.h"
#include "recipes/plan/recipe_plan.h"

namespace automodel::recipes {

/// The plan as text.
std::string plan_text(const RecipePlan& plan);
/// The plan as JSON; sizes are bytes of one rank.
Json plan_json(const RecipePlan& plan);

}  // namespace automodel::recipes

#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "recipes/plan/recipe_plan.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Where a recipe is planned to run.
struct PlannedPlace {
  std::string recipe_path = {};  ///< for the text
  int64_t world_size = 1;
  std::optional<int64_t> sequence_length;  ///< absent: the dataset's, else the model's up to 2048
  at::Device device = at::kCPU;
};

/// Plans a recipe without errors whose config.json is on this machine. Builds the model on
/// placeholders. Throws UnsupportedError for axes that cannot be planned.
RecipePlan make_plan(const Recipe& recipe, const PlannedPlace& place);

}  // namespace automodel::recipes

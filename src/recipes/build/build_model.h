#pragma once

#include <c10/core/ScalarType.h>

#include <memory>

#include "models/causal_lm.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The recipe's model as a run trains it, whole and without memory: with adapters and everything
/// else frozen where the recipe has a `peft` section.
std::shared_ptr<models::CausalLM> build_model(const Recipe& recipe, at::ScalarType dtype);

}  // namespace automodel::recipes

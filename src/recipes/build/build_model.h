#pragma once

#include <c10/core/ScalarType.h>

#include <memory>

#include "models/causal_lm.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The recipe's model as a run trains it, whole and without memory: with adapters and everything
/// else frozen where the recipe has a `peft` section, held in 4 bits where it has `quantization`.
std::shared_ptr<models::CausalLM> build_model(const Recipe& recipe, at::ScalarType dtype);

/// Elements of all tensors of the Hugging Face model, adapters included, also of those whose
/// memory is bytes (weights in 4 bits).
int64_t num_elements(const models::CausalLM& model);

}  // namespace automodel::recipes

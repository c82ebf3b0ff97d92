#pragma once

#include <c10/core/ScalarType.h>

#include <memory>

#include "models/causal_lm.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The recipe's model as a run trains it, unsplit and without memory. A `peft` section adds
/// adapters and freezes everything else; a `quantization` section holds weights in 4 bits; a
/// `freeze_config` section freezes what it names; of a frozen model nothing is trained.
std::shared_ptr<models::CausalLM> build_model(const Recipe& recipe, at::ScalarType dtype);

/// Number of elements of all tensors of the Hugging Face model, adapters included; weights in 4
/// bits count as the elements that their bytes stand for.
int64_t num_elements(const models::CausalLM& model);

}  // namespace automodel::recipes

#pragma once

#include "models/causal_lm.h"
#include "optim/muon.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The roles of a model's tensors for an optimizer of matrices, as upstream groups them:
/// embeddings, tensors named lm_head, and the parameters of two dimensions; experts, of which a
/// parameter holds all, are no matrices. For a part of a model, those that it has.
optim::TensorRoles tensor_roles(const models::CausalLM& model);

/// tensor_roles() where the recipe's optimizer changes matrices as wholes, else none.
optim::TensorRoles optimizer_roles(const Recipe& recipe, const models::CausalLM& model);

}  // namespace automodel::recipes

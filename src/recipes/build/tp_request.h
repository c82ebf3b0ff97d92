#pragma once

#include "distributed/tensor/tp_plan.h"
#include "mesh/mesh.h"
#include "models/causal_lm.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// What a recipe says of tensor parallelism, whatever its strategy.
struct TpRequest {
  int64_t size = 1;
  bool sequence_parallel = false;
  distributed::TpPlanChoice plan;
};

TpRequest tp_request(const Recipe& recipe);

/// A model as plans see it.
distributed::TpModel tp_model(const models::CausalLM& model);

/// The mesh of a recipe on `world_size` ranks.
mesh::MeshSizes mesh_of(const Recipe& recipe, int64_t world_size);

/// Everything that keeps a recipe's plan from being used on its model, by the place in the recipe.
void check_tensor_parallel(const Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

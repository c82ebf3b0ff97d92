#pragma once

#include <optional>

#include "distributed/tensor/tp_plan.h"
#include "mesh/mesh.h"
#include "models/causal_lm.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The recipe's settings for tensor parallelism, with any strategy.
struct TpRequest {
  int64_t size = 1;
  bool sequence_parallel = false;
  distributed::TpPlanChoice plan;
};

TpRequest tp_request(const Recipe& recipe);

/// The facts about a model from which tensor-parallel plans are made.
distributed::TpModel tp_model(const models::CausalLM& model);

/// Whether the recipe's plan splits the head of its model; nullopt where that cannot be told.
std::optional<bool> splits_vocabulary(const Recipe& recipe);

/// The mesh sizes of a recipe on `world_size` ranks.
mesh::MeshSizes mesh_of(const Recipe& recipe, int64_t world_size);

/// Adds everything that prevents the recipe's tensor-parallel plan from being used on its model,
/// each at its key.
void check_tensor_parallel(const Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

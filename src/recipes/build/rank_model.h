#pragma once

#include "distributed/tensor/split_module.h"
#include "mesh/mesh.h"
#include "models/causal_lm.h"
#include "nn/activation_sizes.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The tensor-parallel plan that a model was split by; empty without one.
struct RankSplit {
  distributed::TpShardPlan tp_rules;
  distributed::TpLayerPlan layers;
};

/// Gives a model, or a stage of one, whose parameters are placeholders, the sizes that one rank of
/// the mesh holds before anything is sharded: its part of split layers and its experts. Ranks
/// differ in the rows of an uneven vocabulary only, for which all keep room alike. For plans: the
/// model cannot run.
RankSplit split_for_a_rank(const Recipe& recipe, const mesh::MeshSizes& sizes,
                           models::CausalLM& model);

/// The parts that the mesh makes of a rank's activations.
void count_parts(const Recipe& recipe, const mesh::MeshSizes& sizes, const nn::ParallelPlan& model,
                 const RankSplit& split, nn::ActivationShape& shape);

/// Ranks that hold different experts.
int64_t expert_ranks(const Recipe& recipe);

}  // namespace automodel::recipes

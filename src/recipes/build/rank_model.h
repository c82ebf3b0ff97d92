#pragma once

#include "distributed/tensor/split_module.h"
#include "mesh/mesh.h"
#include "models/causal_lm.h"
#include "nn/activation_sizes.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// How a model was split.
struct RankSplit {
  distributed::TpShardPlan tp_rules;  ///< empty without tensor parallelism, as `layers` is
  distributed::TpLayerPlan layers;
  tensor::KeyMap keys;  ///< of the parameters that are left
};

/// Gives a model (or one pipeline stage) whose parameters are placeholders the sizes that one rank
/// of the mesh holds before sharding: its part of split layers and its experts. Ranks differ only
/// where the vocabulary does not divide evenly, and all of them allocate the same rows. For plans:
/// the model cannot run.
RankSplit split_for_a_rank(const Recipe& recipe, const mesh::MeshSizes& sizes,
                           models::CausalLM& model);

/// Sets in `shape` the number of parts into which the mesh splits a rank's activations.
void count_parts(const Recipe& recipe, const mesh::MeshSizes& sizes, const nn::ParallelPlan& model,
                 const RankSplit& split, nn::ActivationShape& shape);

/// Number of ranks that hold different experts (ep_size).
int64_t expert_ranks(const Recipe& recipe);

}  // namespace automodel::recipes

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/json.h"
#include "distributed/memory_plan.h"
#include "distributed/tp_plan.h"
#include "mesh/mesh.h"
#include "nn/activation_sizes.h"
#include "nn/parallel_plan.h"
#include "recipes/pipeline_plan.h"

namespace automodel::recipes {

/// What `automodel plan` prints.
struct RecipePlan {
  std::string recipe;
  mesh::MeshSizes sizes;
  int64_t ep = 1;  ///< ranks that hold different experts
  std::string strategy;
  distributed::DistributedSetup setup;  ///< the strategy's options, as printed
  std::string architecture;
  int64_t num_parameters = 0;
  int64_t num_trained = 0;
  at::ScalarType dtype = at::kFloat;
  nn::ActivationShape shape;  ///< of a rank's share
  int64_t whole_length = 0;   ///< tokens of a sequence on all context-parallel ranks
  nn::ParallelPlan parallel;
  bool sequence_parallel = false;
  distributed::TpShardPlan tp_rules;  ///< empty without tensor parallelism
  distributed::MemoryOptions options;
  distributed::MemoryPlan memory;        ///< of the whole model: not of a pipeline's stages
  std::optional<PipelinePlan> pipeline;  ///< above one pipeline rank
  bool counts_activations = true;
  bool has_layer_units = true;           ///< what is sharded are the layers, as is planned
  std::vector<std::string> not_counted;  ///< what a run has or does beside what is planned

  at::ScalarType computed_dtype() const {
    return options.sharding ? options.sharding->param_dtype.value_or(dtype) : dtype;
  }
};

/// For people.
std::string plan_text(const RecipePlan& plan);
/// For programs; sizes are bytes of one rank.
Json plan_json(const RecipePlan& plan);

}  // namespace automodel::recipes

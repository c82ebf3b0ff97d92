#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "distributed/plan/memory_plan.h"
#include "distributed/tensor/tp_plan.h"
#include "mesh/mesh.h"
#include "nn/activation_sizes.h"
#include "nn/parallel_plan.h"
#include "recipes/plan/pipeline_plan.h"
#include "recipes/plan/plan_fit.h"
#include "recipes/plan/teacher_plan.h"

namespace automodel::recipes {

/// The name of the part for activations when they are not counted exactly.
inline constexpr const char* kActivationsAtMost = "activations, at most";

/// What `automodel plan` prints, for one rank.
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
  nn::ActivationShape shape;  ///< of one rank's share
  int64_t whole_length = 0;   ///< tokens of a sequence on all context-parallel ranks
  nn::ParallelPlan parallel;
  bool sequence_parallel = false;
  distributed::TpShardPlan tp_rules;  ///< empty without tensor parallelism
  distributed::MemoryOptions options;
  distributed::MemoryPlan memory;        ///< of the whole model: not of a pipeline's stages
  std::optional<PipelinePlan> pipeline;  ///< above one pipeline rank
  std::optional<TeacherPlan> teacher;    ///< of a recipe that distils
  bool counts_activations = true;
  int64_t activations_at_most = 0;  ///< their upper bound when they are not counted
  int64_t loading_host = 0;     ///< host memory while weights are loaded, beside what rests there
  int64_t saving_host = 0;      ///< host memory while a checkpoint is saved and exported
  int64_t background_copy = 0;  ///< on the CPU: what is saved while training goes on, once more
  std::optional<PlanFit> fit;   ///< with the device that was named
  bool has_layer_units = true;  ///< the units are the layers, as the plan assumes
  std::vector<std::string> not_counted;  ///< what a run does or allocates beyond the plan

  at::ScalarType computed_dtype() const {
    return options.sharding ? options.sharding->param_dtype.value_or(dtype) : dtype;
  }

  /// Device memory of the rank that needs most, in bytes: while weights are loaded, at the fullest
  /// moment of a step, and while a checkpoint is saved.
  int64_t loading_bytes() const;
  int64_t step_bytes() const;
  int64_t saving_bytes() const;
  int64_t most_bytes() const;
  /// Host memory beside a device, of the rank that needs most, in bytes.
  int64_t host_bytes() const;
  /// The teacher's memory of the device that no moment gives back; 0 without one.
  int64_t teacher_bytes() const { return teacher ? teacher->parameters : 0; }
  /// What step_bytes() is the sum of.
  std::vector<PlanPart> parts() const;
};

}  // namespace automodel::recipes

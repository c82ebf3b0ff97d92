#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "distributed/plan/memory_plan.h"
#include "nn/activation_sizes.h"
#include "recipes/build/pipeline_request.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// What one stage needs on one of its ranks, in bytes.
struct StagePlan {
  int stage = 0;
  int pp_rank = 0;
  std::vector<std::string> modules;
  int64_t num_parameters = 0;
  int64_t state = 0;      ///< parameters, gradients, optimizer
  int64_t kept = 0;       ///< activations of a micro-batch between forward and backward
  int64_t unreduced = 0;  ///< gradients that wait for the step's last micro-batch
  int64_t working = 0;    ///< what else a step needs at the moment when it uses most memory
  int64_t host = 0;       ///< offloaded state
  int64_t building = 0;   ///< beside `state` while weights are loaded
};

struct PipelineRankPlan {
  int64_t state = 0;
  int64_t in_flight = 0;  ///< most (stage, micro-batch) pairs at once
  int64_t kept = 0;       ///< their activations
  int64_t unreduced = 0;
  int64_t working = 0;  ///< of the stage with the largest
  int64_t total = 0;
  int64_t host = 0;  ///< from here on: summed over its stages, or the largest of them
  int64_t building = 0;
};

/// What a pipeline needs, computed before a run.
struct PipelinePlan {
  distributed::PipelineSchedule schedule;
  int64_t microbatch_size = 1;
  double bubble =
      0;  ///< the ranks' idle share, for equal stages and both backwards as long as a forward
  int64_t num_sends = 0;  ///< of a batch, on all ranks of a pipeline
  int64_t sent_bytes = 0;
  std::vector<StagePlan> stages;
  std::vector<PipelineRankPlan> ranks;  ///< by pp rank
};

struct PipelinePlanOptions {
  at::ScalarType dtype = at::kFloat;  ///< of storage
  nn::ActivationShape shape;          ///< of the local batch
  distributed::MemoryOptions memory;
  mesh::MeshSizes sizes;
};

PipelinePlan plan_pipeline(const Recipe& recipe, const PipelinePlanOptions& options);

std::string pipeline_text(const PipelinePlan& plan);
Json pipeline_json(const PipelinePlan& plan);

}  // namespace automodel::recipes

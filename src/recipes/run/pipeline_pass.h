#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "distributed/pipeline/executor.h"
#include "distributed/pipeline/pipeline_engine.h"
#include "models/causal_lm.h"
#include "recipes/build/build_engine.h"
#include "recipes/build/pipeline_request.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// A rank's part of a pipelined model.
struct BuiltPipeline {
  std::vector<std::shared_ptr<models::CausalLM>> parts;  ///< its stages, in forward order
  std::unique_ptr<distributed::PipelineEngine> engine;
};

/// Builds this rank's stages without memory, spreads each over the stage's ranks and gives it
/// memory. Called by every rank.
BuiltPipeline build_pipeline(const Recipe& recipe, const PipelineRequest& request,
                             at::ScalarType dtype, const distributed::DeviceMesh& mesh,
                             const EnginePlace& place);

using BatchListener = std::function<void(double divisor, int64_t num_micro_batches)>;

/// The pass of TrainStep over a pipeline: batches are cut into pp_microbatch_size sequences, the
/// last stage's losses are plain sums, gradients are divided once they are reduced. Sequences are
/// split over context-parallel ranks before. `on_batch` is told before each batch what its
/// gradients will be divided by, and its number of micro-batches.
std::unique_ptr<training::BatchPass> make_pipeline_pass(
    const Recipe& recipe, const PipelineRequest& request, const BuiltPipeline& built,
    const distributed::DeviceMesh& mesh, const EnginePlace& place, BatchListener on_batch);

}  // namespace automodel::recipes

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

/// Builds this rank's stages without memory, splits each over the ranks of the stage and allocates
/// its memory. Every rank calls it.
BuiltPipeline build_pipeline(const Recipe& recipe, const PipelineRequest& request,
                             at::ScalarType dtype, const distributed::DeviceMesh& mesh,
                             const EnginePlace& place);

/// Functions that a pipeline's pass calls around the batches that it computes; each may be empty.
struct PipelineListener {
  /// Called before each batch that is trained on, with the divisor of its gradients.
  std::function<void(double divisor, int64_t num_micro_batches)> on_batch;
  /// Called before each batch, also of validation: `whole` is on the CPU, `cut` are the
  /// micro-batches with this rank's part of its sequences.
  std::function<void(const tensor::Batch& whole, const std::vector<tensor::Batch>& cut)> on_cut =
      {};
  /// Called on the last stage before the loss of a micro-batch, with its number in the batch.
  std::function<void(int micro_batch)> on_loss = {};
};

/// The pass of TrainStep over a pipeline. It splits sequences over context-parallel ranks, then
/// cuts batches into micro-batches of pp_microbatch_size sequences. The last stage's losses are
/// plain sums; gradients are divided after they are reduced.
std::unique_ptr<training::BatchPass> make_pipeline_pass(
    const Recipe& recipe, const PipelineRequest& request, const BuiltPipeline& built,
    const distributed::DeviceMesh& mesh, const EnginePlace& place, PipelineListener listener);

}  // namespace automodel::recipes

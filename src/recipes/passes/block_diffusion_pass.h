#pragma once

#include <deque>
#include <vector>

#include "comm/groups/process_group.h"
#include "core/json.h"
#include "distributed/engine/engine.h"
#include "models/block_denoiser.h"
#include "recipes/passes/block_diffusion.h"
#include "recipes/read/recipe.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// What a pass needs besides its model and engine.
struct BlockDiffusionPassOptions {
  BlockDiffusionOptions diffusion;
  double encoder_loss_weight = 1.0;
  int64_t ignore_index = -100;
  int64_t grad_acc_steps = 1;
  comm::ProcessGroup data_ranks = comm::ProcessGroup::solo("dp");
  at::Device device = at::kCPU;
};

/// The options of a recipe that has a `dllm` section.
BlockDiffusionPassOptions block_diffusion_options(const Recipe& recipe,
                                                  const models::BlockDenoiser& model);

/// The pass of TrainStep for block diffusion. The loss is the canvases' cross-entropy divided by
/// the step's scored tokens, plus encoder_loss_weight times the text's divided by the step's token
/// pairs; both counts are of all ranks.
class BlockDiffusionPass final : public training::BatchPass {
 public:
  /// `model` and `engine` outlive the pass.
  BlockDiffusionPass(models::BlockDenoiser& model, distributed::Engine& engine,
                     BlockDiffusionPassOptions options);

  /// Adds noise to a step's batches and counts what is scored. Every rank calls it.
  void begin_step(const std::vector<tensor::Batch>& batches, int64_t step) override;
  /// Counts tokens including padding.
  tensor::TokenCounts count(const tensor::Batch& batch, int64_t ignore_index) const override;
  /// Adds noise to the batch and sets its labels to those that are scored.
  void begin_validation(tensor::Batch& batch, int64_t step) override;
  /// Renames the record's token counts as upstream's recipe does, and adds dllm_loss, draft_acc and
  /// mode. Every rank calls it.
  void describe(Json& record) const override;

  double train(const tensor::Batch& batch, double divisor,
               const training::BatchPlace& place) override;
  void finish(double) override {}
  double evaluate(const tensor::Batch& batch, int64_t index) override;
  double known_everywhere(double loss) override;

 private:
  models::BlockDiffusionBatch noised(const tensor::Batch& batch, int64_t step,
                                     int64_t micro_batch) const;

  models::BlockDenoiser& model_;
  distributed::Engine& engine_;
  BlockDiffusionPassOptions options_;
  std::deque<models::BlockDiffusionBatch> prepared_;
  models::BlockDiffusionScale scale_;
  double canvas_loss_ = 0;  // of this rank, this step
  training::LossSum total_sum_, canvas_sum_;
};

}  // namespace automodel::recipes

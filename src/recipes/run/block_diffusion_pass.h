#pragma once

#include <deque>
#include <vector>

#include "comm/process_group.h"
#include "core/json.h"
#include "distributed/engine/engine.h"
#include "models/block_denoiser.h"
#include "recipes/read/recipe.h"
#include "recipes/run/block_diffusion.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// What a pass needs to know beside its model and engine.
struct BlockDiffusionPassOptions {
  BlockDiffusionOptions diffusion;
  double encoder_loss_weight = 1.0;
  int64_t ignore_index = -100;
  int64_t grad_acc_steps = 1;
  comm::ProcessGroup data_ranks = comm::ProcessGroup::solo("dp");
  at::Device device = at::kCPU;
};

/// The options of a recipe whose `dllm` section was read.
BlockDiffusionPassOptions block_diffusion_options(const Recipe& recipe,
                                                  const models::BlockDenoiser& model);

/// How a recipe's samples become batches: pad and end-of-sequence ids are the tokenizer's (0 and
/// the pad id without).
datasets::WindowCollaterConfig window_collater_of(const Recipe& recipe,
                                                  const datasets::TextEncoder& encoder);

/// The pass of TrainStep for block diffusion: the canvas's cross-entropies by the scored tokens of
/// the whole step on all ranks, plus encoder_loss_weight times the text's by its token pairs.
class BlockDiffusionPass final : public training::BatchPass {
 public:
  /// Both outlive the pass.
  BlockDiffusionPass(models::BlockDenoiser& model, distributed::Engine& engine,
                     BlockDiffusionPassOptions options);

  /// Noises a step's batches and counts what is scored.
  void begin_step(const std::vector<tensor::Batch>& batches, int64_t step) override;
  /// Tokens are counted with their padding.
  tensor::TokenCounts count(const tensor::Batch& batch, int64_t ignore_index) const override;
  /// Noises the batch and leaves it with the labels that are scored.
  void begin_validation(tensor::Batch& batch, int64_t step) override;
  /// Replaces the record's token counts by upstream's keys of this recipe.
  void describe(Json& record) const override;

  double train(const tensor::Batch& batch, double divisor,
               const training::BatchPlace& place) override;
  void finish(double) override {}
  double evaluate(const tensor::Batch& batch, int64_t index) override;
  double known_everywhere(double loss) override { return loss; }

 private:
  models::BlockDiffusionBatch noised(const tensor::Batch& batch, int64_t step,
                                     int64_t micro_batch) const;

  models::BlockDenoiser& model_;
  distributed::Engine& engine_;
  BlockDiffusionPassOptions options_;
  std::deque<models::BlockDiffusionBatch> prepared_;
  models::BlockDiffusionScale scale_;
  double canvas_loss_ = 0;  // of this rank, this step
};

}  // namespace automodel::recipes

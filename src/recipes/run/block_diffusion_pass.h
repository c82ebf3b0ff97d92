#pragma once

#include <deque>
#include <vector>

#include "comm/process_group.h"
#include "core/json.h"
#include "distributed/engine/engine.h"
#include "models/diffusion_gemma/diffusion_model.h"
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
BlockDiffusionPassOptions block_diffusion_options(
    const Recipe& recipe, const models::diffusion_gemma::DiffusionGemmaModel& model);

/// How a recipe's samples become batches: pad and end-of-sequence ids are the tokenizer's (0 and
/// the pad id without).
datasets::WindowCollaterConfig window_collater_of(const Recipe& recipe,
                                                  const datasets::TextEncoder& encoder);

/// The pass of TrainStep for block diffusion: the canvas's cross-entropies by the scored tokens of
/// the whole step on all ranks, plus encoder_loss_weight times the text's by its token pairs. Each
/// step is announced by begin_step(), each validation batch by begin_validation().
class BlockDiffusionPass final : public training::BatchPass {
 public:
  /// Both outlive the pass.
  BlockDiffusionPass(models::diffusion_gemma::DiffusionGemmaModel& model,
                     distributed::Engine& engine, BlockDiffusionPassOptions options);

  /// Noises a step's batches and counts what is scored. Every rank calls it.
  void begin_step(const std::vector<tensor::Batch>& group, int64_t step);
  /// Replaces the record's token counts by upstream's keys of this recipe, of the step that was
  /// just done. Every rank calls it.
  void describe(Json& record) const;
  /// Tokens of the step on all ranks, padding included.
  int64_t num_tokens() const { return num_tokens_; }

  /// The batch whose evaluate() comes next; leaves it with the labels that are scored.
  void begin_validation(tensor::Batch& batch, int64_t step);

  double train(const tensor::Batch& batch, double divisor,
               const training::BatchPlace& place) override;
  void finish(double) override {}
  double evaluate(const tensor::Batch& batch, int64_t index) override;
  double known_everywhere(double loss) override { return loss; }

 private:
  models::diffusion_gemma::BlockDiffusionBatch noised(const tensor::Batch& batch, int64_t step,
                                                      int64_t micro_batch) const;

  models::diffusion_gemma::DiffusionGemmaModel& model_;
  distributed::Engine& engine_;
  BlockDiffusionPassOptions options_;
  std::deque<models::diffusion_gemma::BlockDiffusionBatch> prepared_;
  models::diffusion_gemma::BlockDiffusionScale scale_;
  double canvas_loss_ = 0;  // of this rank, this step
  int64_t num_tokens_ = 0;
};

}  // namespace automodel::recipes

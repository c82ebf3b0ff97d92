#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "comm/groups/process_group.h"
#include "core/json.h"
#include "distributed/engine/engine.h"
#include "models/causal_lm.h"
#include "recipes/passes/diffusion_objective.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// What a pass needs besides its model, engine and objective.
struct DiffusionPassOptions {
  int64_t seed = 42;  ///< of dropout
  int64_t grad_acc_steps = 1;
  comm::ProcessGroup data_ranks = comm::ProcessGroup::solo("dp");
  at::Device device = at::kCPU;
};

/// The pass of TrainStep for an objective of diffusion, whose losses are divided by the step's
/// supervised tokens.
class DiffusionPass final : public training::BatchPass {
 public:
  /// `model` and `engine` outlive the pass.
  DiffusionPass(models::CausalLM& model, distributed::Engine& engine,
                std::unique_ptr<DiffusionObjective> objective, DiffusionPassOptions options);

  /// Adds noise to a step's batches.
  void begin_step(const std::vector<tensor::Batch>& batches, int64_t step) override;
  /// Counts tokens including padding.
  tensor::TokenCounts count(const tensor::Batch& batch, int64_t ignore_index) const override;
  /// Adds noise to the batch; all supervised tokens count in the mean.
  void begin_validation(tensor::Batch& batch, int64_t step) override;
  /// describe_diffusion(). Every rank calls it.
  void describe(Json& record) const override;

  double train(const tensor::Batch& batch, double divisor,
               const training::BatchPlace& place) override;
  void finish(double divisor) override { plain_->finish(divisor); }
  double evaluate(const tensor::Batch& batch, int64_t index) override;
  double known_everywhere(double loss) override { return plain_->known_everywhere(loss); }

 private:
  NoisedBatch noised(const tensor::Batch& batch, int64_t step, int64_t micro_batch) const;
  /// Makes the next batch, on the device, the current one.
  void advance();

  distributed::Engine& engine_;
  std::unique_ptr<DiffusionObjective> objective_;
  DiffusionPassOptions options_;
  std::deque<NoisedBatch> prepared_;
  NoisedBatch current_;  // which plain_ computes
  std::unique_ptr<training::BatchPass> plain_;
  at::Tensor denoising_;  // of this rank, this step; undefined where it is the loss
};

}  // namespace automodel::recipes

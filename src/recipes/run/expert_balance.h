#pragma once

#include <memory>
#include <vector>

#include "comm/process_group.h"
#include "distributed/engine/engine.h"
#include "distributed/groups/device_mesh.h"
#include "models/causal_lm.h"
#include "moe/load_balance.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The groups that hold different tokens or layers of a step.
struct BalanceRanks {
  comm::ProcessGroup tokens;    ///< with different tokens, including context-parallel ranks
  comm::ProcessGroup context;   ///< with different parts of a sequence, by context parallelism
  comm::ProcessGroup sequence;  ///< with different parts of a sequence, by tensor parallelism
  comm::ProcessGroup stages;    ///< with different layers (pipeline stages)
};

/// What a mixture of experts needs around each optimizer step: before it the scale of the auxiliary
/// loss, after it the experts' load and the routers' correction. Does nothing for other models.
class ExpertBalance final {
 public:
  using Parts = std::vector<std::shared_ptr<models::CausalLM>>;

  /// `parts` are this rank's stages and outlive this object.
  ExpertBalance(const Parts& parts, BalanceRanks ranks);

  /// Makes every expert get the same number of tokens, for measurements.
  void use_fake_balanced_gates();

  /// Leaves the routers' corrections unchanged; for models of which only adapters are trained.
  void keep_corrections() { keeps_corrections_ = true; }

  void begin_step(int64_t num_micro_batches);
  /// Called before a batch whose gradients will be divided by `divisor` after `num_micro_batches`
  /// forwards (pipelines). Without the call, gradients are expected to be divided already.
  void begin_batch(double divisor, int64_t num_micro_batches);
  /// Called after the optimizer's update. All ranks call it.
  void end_step(distributed::Engine& engine);

  /// The last step's load of this rank's layers with experts.
  const std::vector<moe::LayerLoad>& loads() const { return loads_; }

  /// Adds the last step's load to its record as the section asks. All ranks call it.
  void describe(const MoeMetricsSection& section, int64_t step, Json& record) const;

 private:
  void set_aux_loss_scale(double scale);

  std::vector<moe::LayerRouter> routers_;
  BalanceRanks ranks_;
  double scale_ = 0;
  bool keeps_corrections_ = false;
  std::vector<moe::LayerLoad> loads_;
};

/// Makes the ExpertBalance of a recipe's model on a mesh; `parts` are this rank's stages and
/// outlive it.
ExpertBalance build_expert_balance(const Recipe& recipe, const distributed::DeviceMesh& mesh,
                                   const ExpertBalance::Parts& parts);

}  // namespace automodel::recipes

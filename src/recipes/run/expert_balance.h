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

/// Ranks between which a step's tokens and layers are spread.
struct BalanceRanks {
  comm::ProcessGroup tokens;    ///< different tokens, context-parallel ranks among them
  comm::ProcessGroup context;   ///< different parts of a sequence, which are averaged over
  comm::ProcessGroup sequence;  ///< different parts of a sequence by tensor parallelism
  comm::ProcessGroup stages;    ///< different layers
};

/// What a mixture of experts needs around each optimizer step: the aux loss's scale before, the
/// experts' load and the correction of the routers after. Nothing for other models.
class ExpertBalance final {
 public:
  using Parts = std::vector<std::shared_ptr<models::CausalLM>>;

  /// `parts` are this rank's stages, and outlive this.
  ExpertBalance(const Parts& parts, BalanceRanks ranks);

  /// Has every expert get equally many tokens, for measurements.
  void use_fake_balanced_gates();

  /// Keeps the routers' corrections as they are: of a model of which only adapters are trained.
  void keep_corrections() { keeps_corrections_ = true; }

  void begin_step(int64_t num_micro_batches);
  /// Before a batch whose gradients will be divided by `divisor`, of `num_micro_batches` forwards
  /// that share it (pipelines); else they are gradients as the optimizer gets them.
  void begin_batch(double divisor, int64_t num_micro_batches);
  /// After the optimizer's update. All ranks call it.
  void end_step(distributed::Engine& engine);

  /// Adds what the section asks for of the last step to its record. All ranks call it.
  void describe(const MoeMetricsSection& section, int64_t step, Json& record) const;

 private:
  void set_aux_loss_scale(double scale);

  std::vector<moe::LayerRouter> routers_;
  BalanceRanks ranks_;
  double scale_ = 0;
  bool keeps_corrections_ = false;
  std::vector<moe::LayerLoad> loads_;
};

/// The balance of a recipe's model on a mesh; `parts` are this rank's stages, and outlive it.
ExpertBalance build_expert_balance(const Recipe& recipe, const distributed::DeviceMesh& mesh,
                                   const ExpertBalance::Parts& parts);

}  // namespace automodel::recipes

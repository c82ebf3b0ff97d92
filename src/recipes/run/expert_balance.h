#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/groups/process_group.h"
#include "core/json.h"
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

  /// The load of the layers of all stages, summed over steps.
  struct GatheredLoad {
    std::vector<moe::LayerLoad> layers;
    int64_t num_steps = 0;
  };
  /// The load since the last call, by one small collective of the stages. All ranks call it.
  GatheredLoad gather();

  /// Whether the model has experts, here or in another stage.
  bool has_experts() const { return has_experts_; }
  /// Whether loads() are of the whole model.
  bool has_all_layers() const { return ranks_.stages.size() == 1; }

  /// Adds the last step's load to its record as the section asks. All ranks call it.
  void describe(const MoeMetricsSection& section, int64_t step, Json& record) const;

 private:
  void set_aux_loss_scale(double scale);
  void add_to_gather();

  std::vector<moe::LayerRouter> routers_;
  BalanceRanks ranks_;
  double scale_ = 0;
  bool keeps_corrections_ = false;
  std::vector<moe::LayerLoad> loads_;
  bool has_experts_ = false;
  std::vector<moe::LayerLoad> since_gather_;
  int64_t steps_since_gather_ = 0;
};

/// What an event `expert_load` says: {"layers": [{"layer", "shares": a fraction of the tokens for
/// each expert}]}, to 1e-5.
Json expert_load(const std::vector<moe::LayerLoad>& loads);

/// Makes the ExpertBalance of a recipe's model on a mesh; `parts` are this rank's stages and
/// outlive it. All ranks call it.
ExpertBalance build_expert_balance(const Recipe& recipe, const distributed::DeviceMesh& mesh,
                                   const ExpertBalance::Parts& parts);

}  // namespace automodel::recipes

#pragma once

#include <vector>

#include "comm/process_group.h"
#include "distributed/engine.h"
#include "models/causal_lm.h"
#include "moe/load_balance.h"
#include "recipes/sections.h"

namespace automodel::recipes {

/// What a mixture of experts needs around each optimizer step: the aux loss's scale before, the
/// experts' load and the correction of the routers after. Nothing for other models.
class ExpertBalance final {
 public:
  /// `model` outlives this. `context_ranks`: ranks that share a sequence.
  ExpertBalance(const models::CausalLM& model, int context_ranks);

  void begin_step(int64_t num_micro_batches);
  /// After the optimizer's update. `tokens` are the ranks with different tokens; all of them call
  /// it.
  void end_step(distributed::Engine& engine, const comm::ProcessGroup& tokens);

  /// Adds what the section asks for of the last step to its record.
  void describe(const MoeMetricsSection& section, int64_t step, Json& record) const;

 private:
  std::vector<moe::LayerRouter> routers_;
  int context_ranks_;
  std::vector<moe::LayerLoad> loads_;
};

}  // namespace automodel::recipes

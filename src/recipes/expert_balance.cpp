#include "recipes/expert_balance.h"

#include <ATen/core/Tensor.h>

#include "moe/load_metrics.h"

namespace automodel::recipes {

ExpertBalance::ExpertBalance(const models::CausalLM& model, int context_ranks)
    : routers_(moe::routers_of(model, model.key_map())), context_ranks_(context_ranks) {}

void ExpertBalance::begin_step(int64_t num_micro_batches) {
  const double scale = static_cast<double>(context_ranks_) / static_cast<double>(num_micro_batches);
  for (const moe::LayerRouter& layer : routers_) layer.router->set_aux_loss_scale(scale);
}

void ExpertBalance::end_step(distributed::Engine& engine, const comm::ProcessGroup& tokens) {
  if (routers_.empty()) return;
  loads_ = moe::take_loads(
      routers_, [&](at::Tensor counts) { tokens.all_reduce(counts, comm::ReduceOp::kSum); });
  if (moe::update_correction_biases(routers_, loads_, engine.parameters())) {
    engine.parameters_changed();
  }
}

void ExpertBalance::describe(const MoeMetricsSection& section, int64_t step, Json& record) const {
  if (!section.enabled) return;
  const bool is_detailed =
      section.mode == "detailed" && step % section.detailed_every_steps.value_or(1) == 0;
  for (const auto& [name, value] :
       moe::load_metrics(loads_, {is_detailed, section.top_k_experts})) {
    record[name] = value;
  }
}

}  // namespace automodel::recipes

#include "distributed/plan/memory_plan.h"

#include <algorithm>

#include "core/error.h"
#include "distributed/plan/step_walk.h"

namespace automodel::distributed {

const UnitMemory& MemoryPlan::largest_unit() const {
  AM_CHECK(!units.empty());
  return *std::max_element(units.begin(), units.end(),
                           [](const auto& a, const auto& b) { return a.numel < b.numel; });
}

MemoryPlan plan_memory(std::span<const FlatParameters> groups, const MemoryOptions& options,
                       const nn::ActivationSizes& activations) {
  MemoryPlan plan;
  const std::vector<std::string>& experts = options.experts.modules;
  const MemoryOptions of_experts = expert_options(options);
  for (const FlatParameters& group : groups) {
    const bool is_expert = std::find(experts.begin(), experts.end(), group.unit) != experts.end();
    plan.units.push_back(unit_memory(group, is_expert ? of_experts : options));
    UnitMemory& unit = plan.units.back();
    unit.is_expert = is_expert;
    plan.parameters += unit.parameters + unit.masters;
    plan.gradients += unit.gradients;
    plan.kept_gradients += unit.kept_gradients();
    plan.optimizer += unit.optimizer;
    plan.host += unit.host;
    // Each buffer is allocated once when it is made.
    plan.building =
        std::max(plan.building, unit.gathered + unit.whole_gradients + unit.accumulated +
                                    unit.gradients - unit.kept_gradients());
  }
  StepWalk walk(plan.units, options, activations);
  const int64_t count = options.num_micro_batches;
  // The second step begins with the buffers that the first has freed, as all later ones do.
  for (int step = 0; step < 2; ++step) {
    walk.begin_step();
    plan.per_micro = walk.micro_batch(1, count == 1);
    plan.per_step = plan.per_micro;
    // Those between the second and the last are like the second.
    if (count > 2) {
      StepCollectives middle = walk.micro_batch(2, false);
      plan.per_step += middle *= count - 2;
    }
    if (count > 1) plan.per_step += walk.micro_batch(count, true);
    walk.update();
  }
  plan.peak = walk.peak();
  return plan;
}

}  // namespace automodel::distributed

#include "distributed/strategies/diffusion_gemma_strategy.h"

#include <memory>

#include "distributed/groups/sharding_groups.h"
#include "distributed/tensor/tp_layers.h"

namespace automodel::distributed {

namespace {

constexpr const char* kDiffusionGemma = "DiffusionGemmaForBlockDiffusion";

}  // namespace

bool has_fsdp_state(const torch::nn::Module& module) {
  return fsdp_module(module) != nullptr;
}

torch::nn::Module* fully_shard_once(torch::nn::Module* module, const ShardingGroups& groups,
                                    const ShardingOptions& options, const ShardFunction& shard) {
  if (module != nullptr && !has_fsdp_state(*module)) shard(*module, groups, options);
  return module;
}

torch::nn::Module& fully_shard_diffusion_gemma(torch::nn::Module& module,
                                               const ShardingGroups& groups,
                                               const ShardingOptions& options,
                                               const ShardFunction& shard) {
  fully_shard_once(child_of(child_of(&module, "moe"), "experts"), groups, options, shard);
  return *fully_shard_once(&module, groups, options, shard);
}

ShardFunction DiffusionGemmaParallelizationStrategy::shard_function() const {
  return [](torch::nn::Module& module, const ShardingGroups& groups,
            const ShardingOptions& options) -> FSDPModule& {
    return *fsdp_module(fully_shard_diffusion_gemma(module, groups, options));
  };
}

PlannedUnits DiffusionGemmaParallelizationStrategy::planned_units(
    const ParallelModel& model, const ParallelizeOptions& options) const {
  PlannedUnits units = DefaultParallelizationStrategy::planned_units(model, options);
  units.experts = model.facts.plan.expert_modules;
  return units;
}

void register_diffusion_gemma_parallel_strategy(StrategyRegistry& registry) {
  if (registry.has(kDiffusionGemma)) return;
  registry.register_parallel_strategy(kDiffusionGemma,
                                      std::make_unique<DiffusionGemmaParallelizationStrategy>());
}

}  // namespace automodel::distributed

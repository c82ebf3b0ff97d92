#pragma once

#include <torch/nn/module.h>

#include "distributed/groups/sharding_groups.h"
#include "distributed/strategies/parallelizer.h"

namespace automodel::distributed {

// Sharding of DiffusionGemma with ep_size 1: upstream's components.models.diffusion_gemma.fsdp, its
// private functions without the underscore. A layer runs two or three times a micro-batch, and most
// of its parameters are experts'; as units of their own these are gathered only while they compute.

/// Whether a module is a unit.
bool has_fsdp_state(const torch::nn::Module& module);

/// Calls `shard`, which stands for fully_shard, on a module that is not a unit yet. Returns null
/// and units unchanged. Collective over the groups when it shards.
torch::nn::Module* fully_shard_once(torch::nn::Module* module, const ShardingGroups& groups,
                                    const ShardingOptions& options,
                                    const ShardFunction& shard = fully_shard);

/// Makes a unit of a layer's `moe.experts`, if it has them, then of the layer; both get the same
/// options. The mesh has one axis: the experts' parameters are split over it into equal ranges of
/// their rows (first dim: experts). Collective over the groups.
torch::nn::Module& fully_shard_diffusion_gemma(torch::nn::Module& module,
                                               const ShardingGroups& groups,
                                               const ShardingOptions& options,
                                               const ShardFunction& shard = fully_shard);

/// The strategy whose layers fully_shard_diffusion_gemma shards when ep_size is 1.
class DiffusionGemmaParallelizationStrategy final : public DefaultParallelizationStrategy {
 public:
  PlannedUnits planned_units(const ParallelModel& model,
                             const ParallelizeOptions& options) const override;

 protected:
  ShardFunction shard_function() const override;
};

/// Registers it for the class DiffusionGemmaForBlockDiffusion, unless that has a strategy already.
void register_diffusion_gemma_parallel_strategy(StrategyRegistry& registry);

}  // namespace automodel::distributed

#pragma once

#include <torch/nn/module.h>

#include "distributed/groups/sharding_groups.h"
#include "distributed/strategies/parallelizer.h"

namespace automodel::distributed {

// Sharding of DiffusionGemma with one rank of experts: upstream's
// components.models.diffusion_gemma.fsdp, its private functions without the underscore. A layer
// runs two or three times a micro-batch, and most of it are experts; as units of their own they are
// gathered only while they compute.

/// Whether a module is a unit.
bool has_fsdp_state(const torch::nn::Module& module);

/// fully_shard of a module that is there and no unit yet; others are returned as they are, and
/// nothing is called. `shard` stands for fully_shard. Collective over the groups when it shards.
torch::nn::Module* fully_shard_once(torch::nn::Module* module, const ShardingGroups& groups,
                                    const ShardingOptions& options,
                                    const ShardFunction& shard = fully_shard);

/// Makes a unit of a layer's `moe.experts`, where it has them, then of the module; both get the
/// same options. A mesh of one axis: the experts' parameters are split into equal ranges over it,
/// the first dim, the experts, first. Collective over the groups.
torch::nn::Module& fully_shard_diffusion_gemma(torch::nn::Module& module,
                                               const ShardingGroups& groups,
                                               const ShardingOptions& options,
                                               const ShardFunction& shard = fully_shard);

/// The strategy whose layers are sharded by fully_shard_diffusion_gemma when ep_size is 1.
class DiffusionGemmaParallelizationStrategy final : public DefaultParallelizationStrategy {
 public:
  PlannedUnits planned_units(const ParallelModel& model,
                             const ParallelizeOptions& options) const override;

 protected:
  ShardFunction shard_function() const override;
};

/// Registers it for the class DiffusionGemmaForBlockDiffusion, unless something is registered.
void register_diffusion_gemma_parallel_strategy(StrategyRegistry& registry);

}  // namespace automodel::distributed

#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "distributed/expert/token_exchange.h"
#include "distributed/fsdp/sharding_options.h"
#include "nn/parallel_plan.h"
#include "tensor/key_map.h"

namespace automodel::distributed {

/// The part of a model that is left on this rank after its experts were split.
struct SplitExperts {
  tensor::KeyMap keys;                      ///< of the parameters that are left
  std::vector<torch::nn::Module*> modules;  ///< the grouped experts, in forward order
};

/// Keeps only this rank's share of the experts in every layer of `model`, whose parameters have no
/// memory yet: equally many consecutive experts on each rank of the ep group. Tokens are exchanged
/// by all-to-all. Throws UserError with upstream's text when the group's size does not divide the
/// number of experts. A model without experts is unchanged.
SplitExperts split_experts(torch::nn::Module& model, const nn::ParallelPlan& plan,
                           const tensor::KeyMap& keys, const ExpertGroups& groups);

/// Makes units of split experts over the ranks that hold the same ones, before the blocks become
/// units. `num_averaged`: number of ranks whose losses are averaged.
void shard_experts(const SplitExperts& experts, const comm::ProcessGroup& ep_shard,
                   const ShardingOptions& options, int num_averaged);

}  // namespace automodel::distributed

#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "distributed/expert/token_exchange.h"
#include "distributed/fsdp/sharding_options.h"
#include "nn/parallel_plan.h"
#include "tensor/key_map.h"

namespace automodel::distributed {

/// A model of which this rank holds a part of the experts.
struct SplitExperts {
  tensor::KeyMap keys;                      ///< of what the model holds now
  std::vector<torch::nn::Module*> modules;  ///< the grouped experts, in forward order
};

/// Leaves `model`, whose parameters have no memory yet, the ep group's rank's share of every layer
/// of experts: as many one behind another on each rank. Tokens come by all-to-all. UserError when
/// the group's size does not divide a number of experts (upstream's text). A model without experts
/// stays as it is.
SplitExperts split_experts(torch::nn::Module& model, const nn::ParallelPlan& plan,
                           const tensor::KeyMap& keys, const ExpertGroups& groups);

/// Makes units of split experts over the ranks that hold the same ones, before the blocks are made
/// units. `num_averaged` ranks' losses are averaged.
void shard_experts(const SplitExperts& experts, const comm::ProcessGroup& ep_shard,
                   const ShardingOptions& options, int num_averaged);

}  // namespace automodel::distributed

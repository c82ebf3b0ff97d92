#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "comm/process_group.h"
#include "distributed/device_mesh.h"
#include "nn/parallel_plan.h"
#include "nn/token_dispatcher.h"
#include "tensor/key_map.h"

namespace automodel::distributed {

/// A model of which this rank holds a part of the experts.
struct SplitExperts {
  tensor::KeyMap keys;                      ///< of what the model holds now
  std::vector<torch::nn::Module*> modules;  ///< the grouped experts, in forward order
};

/// Leaves `model`, whose parameters have no memory yet, the ep group's rank's share of every layer
/// of experts: as many one behind another on each rank. Tokens come by all-to-all. UserError when
/// the group's size does not divide a number of experts (upstream's text), or there are none.
SplitExperts split_experts(torch::nn::Module& model, const nn::ParallelPlan& plan,
                           const tensor::KeyMap& keys, const comm::ProcessGroup& ep);

/// Makes units of split experts over the ranks that hold the same ones, before the blocks are made
/// units. `num_averaged` ranks' losses are averaged.
void shard_experts(const SplitExperts& experts, const comm::ProcessGroup& ep_shard,
                   const ShardingOptions& options, int num_averaged);

/// Sends each token once to every rank that holds one of its experts, with the weights of those,
/// and the sums of their results back. Counts go first; a rank may get no token. Collective over
/// the group in dispatch, combine and their backward passes.
std::shared_ptr<nn::TokenDispatcher> make_all_to_all_dispatcher(const comm::ProcessGroup& ep,
                                                                int64_t num_experts);

}  // namespace automodel::distributed

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

/// Ranks between which tokens travel to experts.
struct ExpertGroups {
  comm::ProcessGroup ep;           ///< holds all experts once
  comm::ProcessGroup same_tokens;  ///< ranks with the same tokens: each sends its part of them
};

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

/// Sends each token once to every rank that holds one of its experts, with the weights of those,
/// and the sums of their results back. Counts go first; a rank may get no token. Ranks with the
/// same tokens have the same results at the end. Collective over the groups in dispatch, combine
/// and their backward passes.
std::shared_ptr<nn::TokenDispatcher> make_all_to_all_dispatcher(const ExpertGroups& groups,
                                                                int64_t num_experts);

}  // namespace automodel::distributed

#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "distributed/tensor/tp_layer_plan.h"
#include "nn/loss_head.h"
#include "tensor/key_map.h"

namespace automodel::distributed {

/// What a rank holds of a module that was split.
struct SplitModule {
  tensor::KeyMap keys;  ///< of the local parameters
  /// Hugging Face names of tensors that every rank holds whole but whose gradients are summands:
  /// norms of single heads, and whatever saw a part of the sequence.
  std::set<std::string> summed;
  std::shared_ptr<nn::LossHead> loss_head;  ///< of a split vocabulary; null: the whole one
  int64_t num_parameters = 0;               ///< elements of the whole module
  int64_t num_trained_parameters = 0;
};

/// Splits a module over a tensor-parallel group before it gets memory: parameters become those of
/// this rank, layers get the hooks that make the whole compute what it did before. The plan has no
/// findings. Every rank of the group calls it; nothing is sent.
SplitModule split_module(torch::nn::Module& module, const TpModel& model, const TpLayerPlan& plan,
                         const comm::ProcessGroup& group, bool sequence_parallel);

}  // namespace automodel::distributed

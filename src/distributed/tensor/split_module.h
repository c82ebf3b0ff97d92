#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/groups/process_group.h"
#include "distributed/tensor/tp_layer_plan.h"
#include "nn/loss_head.h"
#include "tensor/key_map.h"

namespace automodel::distributed {

/// What a rank holds of a split module.
struct SplitModule {
  tensor::KeyMap keys;  ///< of the local parameters
  /// Hugging Face names of tensors that every rank holds whole but whose gradients must be summed
  /// over the ranks: norms of single heads, and parameters that saw only a part of the sequence.
  std::set<std::string> summed;
  std::shared_ptr<nn::LossHead> loss_head;  ///< set for a split vocabulary, else null
  int64_t num_parameters = 0;               ///< elements of the whole module
  int64_t num_trained_parameters = 0;
};

/// Splits a module over a tensor-parallel group before its memory is allocated: parameters get this
/// rank's sizes, and layers get hooks with the collectives that keep the whole result unchanged.
/// The plan must have no findings. Every rank of the group calls it; it does not communicate.
SplitModule split_module(torch::nn::Module& module, const TpModel& model, const TpLayerPlan& plan,
                         const comm::ProcessGroup& group, bool sequence_parallel);

}  // namespace automodel::distributed

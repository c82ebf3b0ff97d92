#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "distributed/tp_plan.h"
#include "nn/loss_head.h"
#include "tensor/key_map.h"

namespace automodel::distributed {

/// One thing that keeps a plan from being used on a model.
struct TpFinding {
  std::string pattern;  ///< the plan's entry that it is about; "" for the sizes
  std::string text;
};

/// A plan brought down to the modules that hold the parameters.
struct TpLayerPlan {
  std::map<std::string, ParallelStyle> styles;  ///< by fqn of the module here; absent: whole
  bool splits_vocabulary = false;               ///< of the output head, tied or not
  std::vector<TpFinding> findings;              ///< empty when the plan can be used
};

/// How a plan is to be used.
struct TpUse {
  int tp_size = 1;
  bool sequence_parallel = false;
  bool must_match = false;  ///< every pattern of the plan must match a module
};

/// Matches a plan with a model's modules, whose parameters need no memory, and checks everything
/// that the sizes and the modules' order ask of it.
TpLayerPlan plan_layers(torch::nn::Module& module, const TpModel& model, const TpShardPlan& plan,
                        const TpUse& use);

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

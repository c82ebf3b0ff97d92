#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>
#include <vector>

#include "distributed/tensor/tp_plan.h"

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

}  // namespace automodel::distributed

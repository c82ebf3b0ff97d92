#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>
#include <vector>

#include "distributed/tensor/tp_plan.h"

namespace automodel::distributed {

/// One reason why a plan cannot be used on a model.
struct TpFinding {
  std::string pattern;  ///< the plan's entry that it concerns; "" for sizes
  std::string text;
};

/// A plan, resolved to the modules that hold the parameters.
struct TpLayerPlan {
  std::map<std::string, ParallelStyle> styles;  ///< by the module's fqn; absent: whole
  bool splits_vocabulary = false;               ///< whether the output head, tied or not, is split
  std::vector<TpFinding> findings;              ///< empty when the plan can be used
};

/// The sizes and rules for which a plan is resolved.
struct TpUse {
  int tp_size = 1;
  bool sequence_parallel = false;
  bool must_match = false;  ///< every pattern of the plan must match a module
};

/// Matches a plan with a model's modules, whose parameters need no memory, and checks the
/// constraints of the sizes and of the modules' order.
TpLayerPlan plan_layers(torch::nn::Module& module, const TpModel& model, const TpShardPlan& plan,
                        const TpUse& use);

}  // namespace automodel::distributed

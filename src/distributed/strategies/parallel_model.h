#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/engine/engine.h"
#include "distributed/fsdp/flat_units.h"
#include "distributed/groups/device_mesh.h"
#include "distributed/tensor/tp_plan.h"
#include "nn/attention_core.h"
#include "nn/loss_head.h"

namespace automodel::distributed {

/// A model as a parallelizer sees it. The module has no memory behind its parameters yet, or owns
/// it, in which case its values are kept.
struct ParallelModel {
  torch::nn::Module& module;
  TpModel facts;  ///< architecture, heads, plan, names of the parameters
  /// Takes the head of a split vocabulary; may be empty when there is no tensor parallelism.
  std::function<void(std::shared_ptr<nn::LossHead>)> set_loss_head;
  /// Takes the attention over the tokens of all context-parallel ranks; empty for a model whose
  /// tokens do not look at each other.
  std::function<void(std::shared_ptr<nn::AttentionCore>)> set_attention_core;
};

/// The modules that a strategy makes units where it shards parameters; all others are the root's.
struct PlannedUnits {
  std::vector<std::string> blocks;   ///< in the order of their forwards
  TableUnits tables;                 ///< embedding and head
  std::vector<std::string> experts;  ///< grouped experts, apart from their blocks
};

/// How one class of models is spread over a mesh by one of the strategies, whose arguments
/// `Options` are.
template <typename Options>
class StrategyOf {
 public:
  virtual ~StrategyOf() = default;

  /// Splits, recomputes and shards `model`, and gives it memory. The engine is the model's owner
  /// from then on. Called by every rank of the mesh.
  virtual std::unique_ptr<Engine> parallelize(const ParallelModel& model, const DeviceMesh& mesh,
                                              const Options& options) const = 0;
  /// The units that parallelize would make, for plans.
  virtual PlannedUnits planned_units(const ParallelModel& model, const Options& options) const = 0;
};

}  // namespace automodel::distributed

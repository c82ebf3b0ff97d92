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

/// A model as strategies see it. Its parameters have no memory yet, or own memory whose values are
/// kept.
struct ParallelModel {
  torch::nn::Module& module;
  TpModel facts;  ///< architecture, heads, plan, parameters' names
  /// Sets the loss head of a split vocabulary; may be empty without tensor parallelism.
  std::function<void(std::shared_ptr<nn::LossHead>)> set_loss_head;
  /// Sets the attention over the tokens of all context-parallel ranks; empty for a model without
  /// attention.
  std::function<void(std::shared_ptr<nn::AttentionCore>)> set_attention_core;
};

/// The modules of which a strategy makes units when it shards; all other modules are the root's.
struct PlannedUnits {
  std::vector<std::string> blocks;   ///< in forward order
  TableUnits tables;                 ///< embedding and head
  std::vector<std::string> experts;  ///< grouped experts that are not part of their blocks
};

/// How one of the strategies spreads one class of models over a mesh. `Options`: the strategy's
/// arguments.
template <typename Options>
class StrategyOf {
 public:
  virtual ~StrategyOf() = default;

  /// Splits, recomputes and shards `model` and allocates its memory. From then on the engine owns
  /// the memory. Every rank of the mesh calls it.
  virtual std::unique_ptr<Engine> parallelize(const ParallelModel& model, const DeviceMesh& mesh,
                                              const Options& options) const = 0;
  /// The units that parallelize() would make, for plans.
  virtual PlannedUnits planned_units(const ParallelModel& model, const Options& options) const = 0;
};

}  // namespace automodel::distributed

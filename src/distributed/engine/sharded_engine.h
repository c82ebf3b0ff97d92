#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/engine/engine.h"
#include "distributed/fsdp/fully_shard.h"
#include "distributed/fsdp/gradient_check.h"
#include "distributed/groups/sharding_groups.h"
#include "tensor/key_map.h"

namespace automodel::distributed {

class MoEFSDPSyncMixin;

/// Makes units of an element of a layer list and returns the element's unit: fully_shard, or a
/// family's own function. Collective over the groups.
using ShardFunction = std::function<FSDPModule&(
    torch::nn::Module& module, const ShardingGroups& groups, const ShardingOptions& options)>;

/// Which units a model has beside its blocks and the root, and how blocks become units.
struct UnitChoices {
  TableUnits tables;
  /// dtype in which an untied head computes and its gradients are reduced, if it differs.
  std::optional<at::ScalarType> head_dtype = {};
  /// Whether the model's experts are already units over ranks of their own.
  bool has_split_experts = false;
  ShardFunction shard = fully_shard;
  /// fqns, in forward order, of the modules that become units instead of the elements of layer
  /// lists; empty: the whole model is one unit.
  std::optional<std::vector<std::string>> modules = {};
};

/// The engine over a tree of units (fully_shard.h): ZeRO 1 to 3, HSDP, mixed precision. Blocks are
/// gathered just before they are used and freed after; the root, which is the module itself, stays
/// gathered while a micro-batch runs.
class ShardedEngine final : public Engine {
 public:
  /// Shards a model: the elements of its layer lists, its tables, then the module itself, which
  /// holds the remaining parameters and whose output, a loss, is never cast. Segments are named by
  /// `keys`. Collective over the groups.
  ShardedEngine(torch::nn::Module& module, const tensor::KeyMap& keys, const ShardingGroups& groups,
                const ShardingOptions& options, const UnitChoices& choices = {});
  /// Takes a module on which fully_shard was called after the modules below it; tensors have the
  /// module's own names. begin_micro_batch need not be called. Throws UserError when the module is
  /// not a unit, or one of a larger module's, and when the ranks' models differ. Collective over
  /// the module's ranks.
  explicit ShardedEngine(torch::nn::Module& module);
  ~ShardedEngine() override;

  /// From now on units keep parameters gathered and gradients unreduced between the micro-batches
  /// of a step, as MoEFSDPSyncMixin says.
  void keep_between_micro_batches();

  HeldPart held_part() const override;
  void begin_micro_batch(bool is_last) override;
  void end_micro_batch() override {}
  BackwardStage backward_stage() override;
  void zero_gradients() override;
  void reduce_gradients() override;
  void parameters_changed() override;
  double gradient_norm() const override;
  GradientCheck gradient_check() const override { return root_->options().gradient_check; }

  FSDPModule& root() const { return *root_; }
  const ShardingCounts& counts() const { return root_->counts(); }

 private:
  void collect(const tensor::KeyMap& keys);

  FSDPModule* root_ = nullptr;
  torch::nn::Module& module_;
  bool has_split_experts_ = false;
  std::unique_ptr<MoEFSDPSyncMixin> sync_;  // null: units are freed after each backward
};

/// Makes units of the elements of layer lists (nn::LayerList, torch's ModuleList and ModuleDict)
/// anywhere below `module`: in each list the lists in it first, then every other element. All but
/// the last free their parameters after forward unless options.reshard_after_forward is set.
/// `shard` makes the units. Other modules are only searched. With prefetch depths the elements
/// gather each other ahead. Upstream's apply_fsdp2_sharding_recursively. Collective over the
/// groups.
void apply_fsdp2_sharding_recursively(torch::nn::Module& module, const ShardingGroups& groups,
                                      const ShardingOptions& options,
                                      const ShardFunction& shard = fully_shard);

}  // namespace automodel::distributed

#include "distributed/engine/sharded_engine.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cmath>

#include "comm/groups/sums.h"
#include "core/error.h"
#include "distributed/engine/moe_fsdp_mixin.h"
#include "distributed/groups/sharding_groups.h"
#include "kernels/optimizer/optimizer_step.h"
#include "nn/layer_list.h"

namespace automodel::distributed {

using tensor::FlatShard;

namespace {

bool is_container(const torch::nn::Module& module) {
  return module.as<nn::LayerList>() != nullptr ||
         module.as<torch::nn::ModuleListImpl>() != nullptr ||
         module.as<torch::nn::ModuleDictImpl>() != nullptr;
}

/// The nearest `depth` units after (direction 1) or before (-1) `units[i]`.
std::vector<FSDPModule*> neighbours(const std::vector<FSDPModule*>& units, size_t i, int64_t depth,
                                    int direction) {
  std::vector<FSDPModule*> found;
  auto at = static_cast<int64_t>(i);
  while (depth-- > 0) {
    at += direction;
    if (at < 0 || at >= static_cast<int64_t>(units.size())) break;
    found.push_back(units[static_cast<size_t>(at)]);
  }
  return found;
}

void chain_prefetches(const std::vector<FSDPModule*>& units, const ShardingOptions& options) {
  if (options.reshard_after_forward == false) return;
  for (size_t i = 0; i < units.size(); ++i) {
    units[i]->set_modules_to_forward_prefetch(
        neighbours(units, i, options.forward_prefetch_depth, 1));
    units[i]->set_modules_to_backward_prefetch(
        neighbours(units, i, options.backward_prefetch_depth, -1));
  }
}

void shard_elements(torch::nn::Module& list, const ShardingGroups& groups,
                    const ShardingOptions& options, const ShardFunction& shard) {
  std::vector<torch::nn::Module*> elements;
  for (const auto& child : list.named_children()) {
    if (is_container(*child.value())) {
      apply_fsdp2_sharding_recursively(*child.value(), groups, options, shard);
    } else {
      elements.push_back(child.value().get());
    }
  }
  std::vector<FSDPModule*> units;
  for (torch::nn::Module* element : elements) {
    ShardingOptions own = options;
    if (!own.reshard_after_forward) own.reshard_after_forward = element != elements.back();
    units.push_back(&shard(*element, groups, own));
  }
  chain_prefetches(units, options);
}

/// Prefixes the names of a unit's parameters with the unit's fqn below the root.
FlatLayout named_below_root(const FSDPModule& unit, FlatLayout layout) {
  if (unit.name().empty()) return layout;
  for (LayoutEntry& entry : layout.entries) {
    entry.parameter = cat(unit.name(), ".", entry.parameter);
  }
  return layout;
}

}  // namespace

void apply_fsdp2_sharding_recursively(torch::nn::Module& module, const ShardingGroups& groups,
                                      const ShardingOptions& options, const ShardFunction& shard) {
  if (is_container(module)) {
    shard_elements(module, groups, options, shard);
    return;
  }
  for (const auto& child : module.named_children()) {
    apply_fsdp2_sharding_recursively(*child.value(), groups, options, shard);
  }
}

namespace {

/// Makes each of the chosen modules a unit.
void shard_modules(torch::nn::Module& module, const std::vector<std::string>& fqns,
                   const ShardingGroups& groups, const ShardingOptions& options) {
  std::vector<FSDPModule*> units;
  for (const std::string& fqn : fqns) {
    ShardingOptions own = options;
    if (!own.reshard_after_forward) own.reshard_after_forward = fqn != fqns.back();
    units.push_back(&fully_shard(module_at(module, fqn), groups, own));
  }
  chain_prefetches(units, options);
}

/// The embedding is freed after its forward, as blocks are. The head computes last, so it stays
/// gathered; its unit returns the loss, which no policy casts.
void shard_tables(torch::nn::Module& module, const UnitChoices& choices,
                  const ShardingGroups& groups, const ShardingOptions& options) {
  const TableUnits& tables = choices.tables;
  ShardingOptions own = options;
  if (!tables.embedding.empty()) {
    own.reshard_after_forward = options.reshard_after_forward.value_or(true);
    own.gathers_in_backward = false;
    fully_shard(module_at(module, tables.embedding), groups, own);
  }
  if (!tables.head.empty()) {
    own = options;
    own.reshard_after_forward = false;
    own.output_dtype.reset();
    if (choices.head_dtype) {
      own.param_dtype = choices.head_dtype;
      own.reduce_dtype = choices.head_dtype;
      own.casts_inputs = true;
    }
    fully_shard(module_at(module, tables.head), groups, own);
  }
}

}  // namespace

ShardedEngine::ShardedEngine(torch::nn::Module& module, const tensor::KeyMap& keys,
                             const ShardingGroups& groups, const ShardingOptions& options,
                             const UnitChoices& choices)
    : Engine(groups.all), module_(module), has_split_experts_(choices.has_split_experts) {
  if (choices.modules) {
    shard_modules(module, *choices.modules, groups, options);
  } else {
    apply_fsdp2_sharding_recursively(module, groups, options, choices.shard);
  }
  shard_tables(module, choices, groups, options);
  ShardingOptions root_options = options;
  root_options.reshard_after_forward = false;
  root_options.output_dtype.reset();
  root_ = &fully_shard(module, groups, root_options);
  collect(keys);
}

namespace {

const ShardingGroups& groups_of(const torch::nn::Module& module) {
  const FSDPModule* unit = fsdp_module(module);
  if (unit == nullptr) {
    throw UserError(cat("ShardedEngine: fully_shard was not called on ", module.name()));
  }
  if (!unit->name().empty()) {
    throw UserError(cat("ShardedEngine: ", module.name(), " is the unit ", unit->name(),
                        " of a larger module, of which the engine is to be made"));
  }
  return unit->groups();
}

/// A line for each parameter of a tree of units.
std::string layouts_of(const FSDPModule& root) {
  std::string text;
  for (const FSDPModule* unit : root.tree_units()) {
    for (const UnitParameters& part : unit->parameters()) {
      for (const LayoutEntry& entry : part.layout.entries) {
        text +=
            cat(unit->name(), ".", entry.parameter, " ", entry.numel, " ", part.is_trained, "\n");
      }
    }
  }
  return text;
}

}  // namespace

ShardedEngine::ShardedEngine(torch::nn::Module& module)
    : Engine(groups_of(module).all), root_(fsdp_module(module)), module_(module) {
  group_.check_same("model (its parameters' names, sizes, or which are trained)",
                    layouts_of(*root_));
  collect(own_names(module));
}

ShardedEngine::~ShardedEngine() = default;

void ShardedEngine::collect(const tensor::KeyMap& keys) {
  for (const FSDPModule* unit : root_->tree_units()) {
    for (const UnitParameters& part : unit->parameters()) {
      const FlatLayout layout = named_below_root(*unit, part.layout);
      parameters_.push_back(
          {unit->name(), part.values, segments_in(layout, keys, part.range_begin, part.range_end)});
      // Every expert-parallel rank holds different experts.
      const int num_ranks = unit->groups().all.size();
      const bool is_own = unit->options().num_averaged.has_value();
      const int64_t numel = is_own ? part.numel * group_.size() / num_ranks : part.numel;
      if (is_own) {
        own_units_.insert(unit->name());
        has_split_experts_ = true;
      }
      num_parameters_ += numel;
      if (!part.is_trained) continue;
      num_trained_parameters_ += numel;
      trained_.push_back(parameters_.back());
      gradients_.push_back({unit->name(), part.gradients, parameters_.back().segments});
    }
  }
}

HeldPart ShardedEngine::held_part() const {
  const ShardingGroups& groups = root_->groups();
  HeldPart part{groups.shard.rank(), groups.shard.size(), groups.replicate.size(),
                groups.replicate.rank() == 0};
  if (has_split_experts_) {
    part.index = groups.all.rank();
    part.count = groups.all.size();
    part.has_own_units = true;
  }
  return part;
}

namespace {

/// Models are not of this room, so the engine is the mixin for its model.
class EngineSync final : public MoEFSDPSyncMixin {
 public:
  explicit EngineSync(torch::nn::Module& module) : module_(module) {}

 protected:
  bool enables_fsdp_optimizations() const override { return true; }
  torch::nn::Module& synced_module() override { return module_; }

 private:
  torch::nn::Module& module_;
};

}  // namespace

void ShardedEngine::keep_between_micro_batches() {
  sync_ = std::make_unique<EngineSync>(module_);
}

void ShardedEngine::begin_micro_batch(bool is_last) {
  if (sync_ != nullptr) {
    is_last ? sync_->prepare_for_final_backward() : sync_->prepare_for_grad_accumulation();
  }
  root_->set_requires_gradient_sync(is_last || !root_->options().defers_gradients);
  root_->set_is_last_backward(is_last);
}

BackwardStage ShardedEngine::backward_stage() {
  return {.mixin = sync_.get(),
          .unit = root_,
          .reduce_grad_per_microbatch = !root_->options().defers_gradients};
}

void ShardedEngine::zero_gradients() {
  for (FSDPModule* unit : root_->tree_units()) unit->zero_gradients();
}

void ShardedEngine::reduce_gradients() {
  root_->set_requires_gradient_sync(true);
  root_->set_is_last_backward(true);
  root_->root_post_backward();
}

void ShardedEngine::parameters_changed() {
  for (FSDPModule* unit : root_->tree_units()) unit->parameters_changed();
}

double ShardedEngine::gradient_norm() const {
  tensor::check_gradients(gradients_);
  double own = 0;
  double shared = 0;
  const std::vector<double> squares = kernels::sums_of_squares(gradients_);
  for (size_t i = 0; i < gradients_.size(); ++i) {
    (own_units_.contains(gradients_[i].unit) ? own : shared) += squares[i];
  }
  const ShardingGroups& groups = root_->groups();
  // Replicas hold the same gradients, except of experts.
  return std::sqrt(has_split_experts_
                       ? comm::sum_over(groups.all, own + shared / groups.replicate.size())
                       : comm::sum_over(groups.shard, own + shared));
}

}  // namespace automodel::distributed

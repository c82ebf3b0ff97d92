// Making units: which parameters a unit takes, and how units below join its tree.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "distributed/fsdp/fully_shard_state.h"
#include "distributed/groups/sharding_groups.h"

namespace automodel::distributed {

/// Finds the parameters of a new unit and joins it and the units below into one tree.
class ModuleSharder final {
 public:
  ModuleSharder(torch::nn::Module& module, const ShardingGroups& groups,
                const ShardingOptions& options)
      : module_(module), unit_(new FSDPModule(module.name(), groups, options)) {
    unit_->tree_ = std::make_shared<FSDPModule::Tree>();
    unit_->tree_->copies = CopyStream(options.device);
    unit_->tree_->root = unit_.get();
    unit_->tree_->units = {unit_.get()};
  }

  std::unique_ptr<FSDPModule> shard() {
    adopt_below(module_, "");
    collect(module_, "");
    unit_->take(flat_parameters("", parameters_));
    return std::move(unit_);
  }

 private:
  void adopt_below(const torch::nn::Module& module, const std::string& prefix) {
    for (const auto& child : module.named_children()) {
      const std::string fqn = prefix + child.key();
      if (!seen_.insert(child.value().get()).second) continue;  // a module in two places
      if (FSDPModule* below = fsdp_module(*child.value())) {
        check_ranks(*below, fqn);
        below->name_ = fqn;
        below->tree_ = unit_->tree_;
        unit_->tree_->units.push_back(below);
        unit_->below_.push_back(below);
        for (const FSDPModule::Flat& flat : below->flats_) {
          for (const at::Tensor& parameter : flat.parameters) {
            taken_.insert(parameter.unsafeGetTensorImpl());
          }
        }
      }
      adopt_below(*child.value(), fqn + ".");
    }
  }

  /// Experts' units have ranks of their own; of all others gradients are summed together.
  void check_ranks(const FSDPModule& below, const std::string& fqn) const {
    const auto text = [](const ShardingGroups& groups) {
      return cat(groups.shard.size(), " x ", groups.replicate.size());
    };
    const bool is_alike = below.groups_.shard.size() == unit_->groups_.shard.size() &&
                          below.groups_.replicate.size() == unit_->groups_.replicate.size();
    if (is_alike || below.options_.num_averaged) return;
    throw UserError(cat("fully_shard: the parts and replicas of unit ", fqn, " are ",
                        text(below.groups_), ", those of ", module_.name(), " around it ",
                        text(unit_->groups_), "; all units of one module need the same ranks"));
  }

  void collect(const torch::nn::Module& module, const std::string& prefix) {
    for (const auto& item : module.named_parameters(false)) {
      const at::TensorImpl* impl = item.value().unsafeGetTensorImpl();
      if (taken_.contains(impl)) {
        throw UserError(cat("fully_shard: parameter ", prefix, item.key(), " of ", module_.name(),
                            " is shared with a unit below it; make both part of one unit"));
      }
      if (own_.insert(impl).second) parameters_.emplace_back(prefix + item.key(), item.value());
    }
    for (const auto& child : module.named_children()) {
      if (fsdp_module(*child.value()) == nullptr) {
        collect(*child.value(), cat(prefix, child.key(), "."));
      }
    }
  }

  torch::nn::Module& module_;
  std::unique_ptr<FSDPModule> unit_;
  std::set<const torch::nn::Module*> seen_;
  std::set<const at::TensorImpl*> taken_;
  std::set<const at::TensorImpl*> own_;
  std::vector<NamedParameter> parameters_;
};

FSDPModule::FSDPModule(std::string type, const ShardingGroups& groups,
                       const ShardingOptions& options)
    : type_(std::move(type)),
      groups_(groups),
      options_(options),
      reshards_after_forward_(options.reshard_after_forward) {
  after_backward_ = [this] {
    for (Flat& flat : flats_)
      flat.num_open_forwards = std::max<int64_t>(0, flat.num_open_forwards - 1);
    post_backward();
  };
}

FSDPModule::~FSDPModule() {
  if (tree_ == nullptr) return;
  Tree& tree = *tree_;
  if (tree.pending && tree.pending->unit == this) tree.pending.reset();
  if (tree.root == this) tree.root = nullptr;
  std::erase(tree.units, this);
  std::erase(tree.forward_order, this);
  for (FSDPModule* unit : tree.units) {
    for (auto* units : {&unit->below_, &unit->forward_prefetch_, &unit->backward_prefetch_}) {
      std::erase(*units, this);
    }
  }
}

FSDPModule::Flat FSDPModule::make_flat(const FlatParameters& group) const {
  const auto ranks = static_cast<int64_t>(groups_.shard.size());
  const int64_t rank = groups_.shard.rank();
  const std::string absent =
      cat("the parameters of this ", type_, " (", group.parameters[0].first,
          ", ...) are sharded: its forward must go through its unit hook, or call unshard() first; "
          "an engine's gradients(), gradient_norm() and zero_gradients(), the optimizers of optim "
          "and checkpoint::save_shards() take them as they are");
  Flat flat;
  UnitParameters& what = flat.what;
  what.layout = group.layout(static_cast<int64_t>(c10::elementSize(group.dtype)), ranks,
                             options_.border_numel);
  what.numel = group.numel();
  const int64_t range = what.layout.range_numel(ranks);
  what.range_begin = rank * range;
  what.range_end = what.range_begin + range;
  what.is_trained = group.is_trained;
  flat.computed = group.keeps_dtype ? group.dtype : options_.param_dtype.value_or(group.dtype);
  flat.reduced = options_.reduce_dtype.value_or(flat.computed);
  const at::Device resting = options_.offload_policy ? at::Device(at::kCPU) : options_.device;
  const bool is_pinned = resting != options_.device && options_.offload_policy->pin_memory;
  const auto own_zeros = [&](at::ScalarType dtype) {
    return is_pinned ? pinned_zeros(range, dtype) : flat_zeros(range, dtype, resting);
  };
  const auto whole = [&](at::ScalarType dtype) {
    return FlatBuffer(what.layout.numel, dtype, options_.device, absent);
  };
  const auto own_range = [&](const FlatBuffer& buffer) {
    return buffer.flat().narrow(0, what.range_begin, range);
  };
  const at::ScalarType main =
      group.keeps_dtype ? group.dtype : options_.main_dtype.value_or(group.dtype);
  flat.gathered = whole(flat.computed);
  flat.owner = OwnerMark(flat.gathered.flat());
  const bool is_in_place = options_.parameters == Placement::kReplicated && flat.computed == main &&
                           resting == options_.device;
  what.values = is_in_place ? own_range(flat.gathered) : own_zeros(main);
  if (group.is_trained) {
    const at::ScalarType dtype = options_.gradient_dtype.value_or(main);
    flat.gathered_gradient = whole(flat.computed);
    if (flat.reduced != flat.computed) flat.accumulated = whole(flat.reduced);
    const FlatBuffer& last =
        flat.accumulated.is_defined() ? flat.accumulated : flat.gathered_gradient;
    const bool is_kept = options_.gradients == Placement::kReplicated &&
                         last.flat().scalar_type() == dtype && resting == options_.device;
    const bool is_freed = options_.gradients == Placement::kSharded && resting == options_.device;
    if (is_freed) flat.own_gradient = FlatBuffer(range, dtype, resting, tensor::kAbsentGradients);
    what.gradients = is_freed  ? flat.own_gradient.flat()
                     : is_kept ? own_range(last)
                               : own_zeros(dtype);
  }
  return flat;
}

void FSDPModule::take(std::vector<FlatParameters> groups) {
  at::NoGradGuard no_grad;
  for (const FlatParameters& group : groups) {
    Flat flat = make_flat(group);
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      at::Tensor parameter = group.parameters[i].second;
      refuse_owned(parameter, group.parameters[i].first);
      const std::vector<int64_t> sizes = parameter.sizes().vec();
      const int64_t offset = flat.what.layout.entries[i].offset;
      const int64_t begin = std::max(offset, flat.what.range_begin);
      const int64_t end = std::min(offset + parameter.numel(), flat.what.range_end);
      if (begin < end && !tensor::is_placeholder(parameter)) {
        const at::Tensor kept = parameter.detach().reshape({-1});
        flat.what.values.narrow(0, begin - flat.what.range_begin, end - begin)
            .copy_(kept.narrow(0, begin - offset, end - begin));
      }
      parameter.set_data(alias(flat.gathered.flat(), offset, sizes));
      if (flat.what.is_trained) {
        parameter.mutable_grad() = alias(flat.gathered_gradient.flat(), offset, sizes);
      }
      flat.parameters.push_back(parameter);
    }
    const bool keeps_gradients = options_.gradients == Placement::kReplicated;
    if (options_.parameters == Placement::kSharded) flat.gathered.release();
    if (flat.what.is_trained) {
      if (flat.accumulated.is_defined() || !keeps_gradients) flat.gathered_gradient.release();
      if (flat.accumulated.is_defined() && !keeps_gradients) flat.accumulated.release();
      if (flat.own_gradient.is_defined()) flat.own_gradient.release();
    }
    described_.push_back(flat.what);
    flats_.push_back(std::move(flat));
  }
}

FSDPModule* fsdp_module(const torch::nn::Module& module) {
  auto* hooked = dynamic_cast<nn::HookedModule*>(const_cast<torch::nn::Module*>(&module));
  if (hooked == nullptr) return nullptr;
  const auto* forward = hooked->unit_hook().find<UnitForward>();
  return forward == nullptr ? nullptr : &forward->unit();
}

FSDPModule& fully_shard(torch::nn::Module& module, const ShardingGroups& groups,
                        const ShardingOptions& options) {
  if (FSDPModule* unit = fsdp_module(module)) return *unit;
  auto* hooked = dynamic_cast<nn::HookedModule*>(&module);
  if (hooked == nullptr) {
    throw UserError(cat("fully_shard: ", module.name(),
                        " has no unit hook: derive it from nn::HookedModule and send its forward "
                        "through an nn::UnitHook"));
  }
  if (groups.all.size() != groups.shard.size() * groups.replicate.size()) {
    throw UserError(cat("fully_shard: `all` has ", groups.all.size(), " ranks, `shard` ",
                        groups.shard.size(), " and `replicate` ", groups.replicate.size(),
                        "; it must have as many as these two together"));
  }
  auto unit = ModuleSharder(module, groups, options).shard();
  FSDPModule& made = *unit;
  hooked->unit_hook().install(std::make_unique<UnitForward>(std::move(unit)));
  return made;
}

}  // namespace automodel::distributed

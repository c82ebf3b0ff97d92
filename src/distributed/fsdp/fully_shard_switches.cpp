// Switches and reports of units, and temporarily unsharded models.
#include <algorithm>

#include "core/error.h"
#include "distributed/fsdp/fully_shard_state.h"

namespace automodel::distributed {

namespace {

constexpr size_t kKeptEvents = 4096;

const char* transition_name(UnitTransition what) {
  switch (what) {
    case UnitTransition::kGather:
      return "gather";
    case UnitTransition::kUnsharded:
      return "unsharded";
    case UnitTransition::kForward:
      return "forward";
    case UnitTransition::kReshard:
      return "reshard";
    case UnitTransition::kBackward:
      return "backward";
    case UnitTransition::kReduce:
      return "reduce";
    case UnitTransition::kReduced:
      return "reduced";
  }
  return "";
}

void find_units(const torch::nn::Module& module, std::vector<FSDPModule*>& units) {
  if (FSDPModule* unit = fsdp_module(module)) units.push_back(unit);
  for (const auto& child : module.named_children()) find_units(*child.value(), units);
}

}  // namespace

std::string UnitEvent::text() const {
  return cat(transition_name(what), " ", unit.empty() ? "root" : unit);
}

void FSDPModule::set_requires_gradient_sync(bool requires_sync, bool recurse) {
  requires_sync_ = requires_sync;
  if (!recurse) return;
  for (FSDPModule* unit : below_) unit->requires_sync_ = requires_sync;
}

void FSDPModule::set_reshard_after_backward(bool reshards, bool recurse) {
  reshards_after_backward_ = reshards;
  if (!recurse) return;
  for (FSDPModule* unit : below_) unit->reshards_after_backward_ = reshards;
}

void FSDPModule::set_reshard_after_forward(bool reshards, bool recurse) {
  reshards_after_forward_ = reshards;
  if (!recurse) return;
  for (FSDPModule* unit : below_) unit->reshards_after_forward_ = reshards;
}

void FSDPModule::set_is_last_backward(bool is_last) {
  tree_->is_last_backward = is_last;
}

bool FSDPModule::is_last_backward() const {
  return tree_->is_last_backward;
}

namespace {

void refuse_null(const std::vector<FSDPModule*>& modules) {
  const bool has_null = std::find(modules.begin(), modules.end(), nullptr) != modules.end();
  if (has_null) throw UserError("a module to prefetch is no unit: call fully_shard on it first");
}

}  // namespace

void FSDPModule::set_modules_to_forward_prefetch(std::vector<FSDPModule*> modules) {
  refuse_null(modules);
  forward_prefetch_ = std::move(modules);
}

void FSDPModule::set_modules_to_backward_prefetch(std::vector<FSDPModule*> modules) {
  refuse_null(modules);
  backward_prefetch_ = std::move(modules);
}

int64_t FSDPModule::resting_bytes() const {
  size_t bytes = 0;
  const auto add = [&](const at::Tensor& held, const FlatBuffer& whole) {
    const bool is_inside = whole.is_there() && held.defined() && share_storage(held, whole.flat());
    if (held.defined() && !is_inside) bytes += held.storage().nbytes();
    if (whole.is_there()) bytes += whole.bytes();
  };
  for (const Flat& flat : flats_) {
    const bool is_accumulated = flat.accumulated.is_defined();
    add(flat.what.values, flat.gathered);
    add(flat.what.gradients, is_accumulated ? flat.accumulated : flat.gathered_gradient);
    if (is_accumulated && flat.gathered_gradient.is_there()) {
      bytes += flat.gathered_gradient.bytes();
    }
  }
  return static_cast<int64_t>(bytes);
}

std::vector<FSDPModule*> FSDPModule::tree_units() const {
  return tree_->units;
}

const ShardingCounts& FSDPModule::counts() const {
  return tree_->counts;
}

std::vector<UnitEvent> FSDPModule::events() const {
  return {tree_->events.begin(), tree_->events.end()};
}

void FSDPModule::clear_events() {
  tree_->events.clear();
}

void FSDPModule::record(UnitTransition what) {
  if (tree_->events.size() == kKeptEvents) tree_->events.pop_front();
  tree_->events.push_back({name_, what});
}

bool all_keep_after_forward(const torch::nn::Module& module) {
  std::vector<FSDPModule*> units;
  find_units(module, units);
  return !units.empty() && std::all_of(units.begin(), units.end(), [](const FSDPModule* unit) {
    return unit->keeps_after_forward();
  });
}

UnshardedModel::UnshardedModel(torch::nn::Module& module) {
  find_units(module, units_);
  try {
    for (FSDPModule* unit : units_) {
      unit->unshard();
      unit->is_held_ = true;
    }
  } catch (...) {
    release();
    throw;
  }
}

UnshardedModel::~UnshardedModel() {
  release();
}

void UnshardedModel::release() {
  for (FSDPModule* unit : units_) {
    unit->is_held_ = false;
    unit->reshard();
  }
}

void unshard_fsdp2_model(torch::nn::Module& module, const std::function<void()>& body) {
  const UnshardedModel unsharded(module);
  body();
}

}  // namespace automodel::distributed

#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/toy_moe.h"

// What tests of the mixture toy's units look at.

namespace automodel::distributed {

using comm::expect;
using comm::ProcessGroup;
using Names = std::vector<std::string>;

/// Every unit of a module, by fqn.
inline void collect_units(const torch::nn::Module& module, const std::string& prefix,
                          std::map<std::string, FSDPModule*>& units) {
  if (FSDPModule* unit = fsdp_module(module)) units[prefix.empty() ? "(outer)" : prefix] = unit;
  for (const auto& child : module.named_children()) {
    collect_units(*child.value(), prefix.empty() ? child.key() : cat(prefix, ".", child.key()),
                  units);
  }
}

inline std::map<std::string, FSDPModule*> units_of(const torch::nn::Module& module) {
  std::map<std::string, FSDPModule*> units;
  collect_units(module, "", units);
  return units;
}

inline Names names_of(const torch::nn::Module& module, const std::vector<FSDPModule*>& wanted) {
  Names names;
  for (const FSDPModule* unit : wanted) {
    for (const auto& [name, found] : units_of(module)) {
      if (found == unit) names.push_back(name);
    }
  }
  return names;
}

inline Names iterated(torch::nn::Module& module) {
  return names_of(module, iter_fsdp_modules(module));
}

/// The three switches of every unit, "FFF" or "TTT", those that occur.
inline std::set<std::string> switches_of(const torch::nn::Module& module) {
  std::set<std::string> found;
  const auto letter = [](bool value) { return value ? 'T' : 'F'; };
  for (const auto& [name, unit] : units_of(module)) {
    found.insert({letter(unit->is_last_backward()), letter(unit->reshard_after_backward()),
                  letter(unit->requires_gradient_sync())});
  }
  return found;
}

inline const std::set<std::string> kOff = {"FFF"};
inline const std::set<std::string> kOn = {"TTT"};

/// Reductions of all trees of a module.
inline int64_t num_reductions(const torch::nn::Module& module) {
  std::set<const ShardingCounts*> trees;
  int64_t count = 0;
  for (const auto& [name, unit] : units_of(module)) {
    if (trees.insert(&unit->counts()).second) count += unit->counts().reductions;
  }
  return count;
}

inline int64_t resting_bytes(const torch::nn::Module& module) {
  int64_t bytes = 0;
  for (const auto& [name, unit] : units_of(module)) bytes += unit->resting_bytes();
  return bytes;
}

inline bool are_all_unsharded(const torch::nn::Module& module) {
  for (const auto& [name, unit] : units_of(module)) {
    if (!unit->is_unsharded()) return false;
  }
  return true;
}

/// This rank's ranges of all units' gradients.
inline at::Tensor gradients_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const auto& [name, unit] : units_of(module)) {
    for (const UnitParameters& part : unit->parameters()) parts.push_back(part.gradients.clone());
  }
  return at::cat(parts);
}

inline void expect_near(const at::Tensor& found, const at::Tensor& wanted,
                        const std::string& what) {
  const double off = ((found - wanted).norm() / wanted.norm()).item<double>();
  expect(off < 1e-6 && wanted.norm().item<double>() > 0, cat(what, ": off by ", off));
}

inline ProcessGroup solo() {
  return ProcessGroup::solo();
}

inline constexpr int kMicroBatches = 3;
inline constexpr int64_t kNumUnits = 7;  // two blocks, their experts, embed_tokens, model, lm_head

inline at::Tensor input_of(const ProcessGroup& group, int micro_batch) {
  return toy_input(10 * micro_batch + group.rank());
}

/// A step without the mixin: every micro-batch reduces.
inline at::Tensor plain_gradients(const ProcessGroup& group) {
  MoeToy toy;
  toy.shard(ShardingGroups::of(group));
  for (int i = 0; i < kMicroBatches; ++i) toy.loss(input_of(group, i)).backward();
  expect(num_reductions(toy) == kNumUnits * kMicroBatches, "reductions without the mixin");
  return gradients_of(toy);
}

}  // namespace automodel::distributed

#include "distributed/engine/data_parallel.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "distributed/fsdp/flat_memory.h"
#include "distributed/fsdp/flat_units.h"
#include "kernels/optimizer/optimizer_step.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

namespace {

using tensor::FlatShard;

FlatLayout whole_layout(const FlatParameters& group) {
  return group.layout(static_cast<int64_t>(c10::elementSize(group.dtype)), 1);
}

}  // namespace

DataParallel::DataParallel(torch::nn::Module& module, const nn::ParallelPlan& plan,
                           const tensor::KeyMap& keys, comm::ProcessGroup group,
                           const DataParallelOptions& options)
    : Engine(std::move(group)), options_(options) {
  bind(module, plan, keys);
}

namespace {

/// The units, in the order in which backward finishes them.
std::vector<std::string> finished_units(const nn::ParallelPlan& plan, const TableUnits& tables) {
  std::vector<std::string> units;
  if (!tables.head.empty()) units.push_back(tables.head);
  units.insert(units.end(), plan.blocks.rbegin(), plan.blocks.rend());
  units.emplace_back();  // the root
  return units;
}

}  // namespace

/// The gradients of each group. Those of one dtype share an arena, so that a bucket may span units.
std::vector<at::Tensor> DataParallel::lay_gradients(const std::vector<FlatParameters>& groups,
                                                    const std::vector<std::string>& finished) {
  std::map<at::ScalarType, std::pair<int64_t, std::vector<GradientRun>>> arenas;
  std::vector<int64_t> begins(groups.size());
  for (size_t unit = 0; unit < finished.size(); ++unit) {
    for (size_t i = 0; i < groups.size(); ++i) {
      if (!groups[i].is_trained || groups[i].unit != finished[unit]) continue;
      auto& [numel, runs] = arenas[groups[i].dtype];
      begins[i] = numel;
      numel += whole_layout(groups[i]).numel;
      runs.push_back({unit, numel});
    }
  }
  std::vector<at::Tensor> gradients(groups.size());
  for (const auto& [dtype, arena] : arenas) {
    const at::Tensor& buffer =
        gradient_arenas_.emplace_back(flat_zeros(arena.first, dtype, options_.device));
    for (size_t i = 0; i < groups.size(); ++i) {
      if (!groups[i].is_trained || groups[i].dtype != dtype) continue;
      gradients[i] = buffer.narrow(0, begins[i], whole_layout(groups[i]).numel);
    }
    reductions_->add(buffer, arena.second);
  }
  return gradients;
}

/// The unit's gradients, whose memory comes and goes with its backwards.
at::Tensor DataParallel::make_gradients(const FlatParameters& group,
                                        const std::vector<std::string>& units) {
  const auto unit = std::find(units.begin(), units.end(), group.unit) - units.begin();
  return own_gradients_->add(static_cast<size_t>(unit), whole_layout(group).numel, group.dtype,
                             options_.device);
}

/// Makes the memory of a replica's gradients: the groups' own where nothing is averaged.
std::vector<at::Tensor> DataParallel::begin_gradients(torch::nn::Module& module,
                                                      const std::vector<FlatParameters>& groups,
                                                      const std::vector<std::string>& units) {
  if (group_.size() > 1) return lay_gradients(groups, units);
  own_gradients_.emplace(units.size());
  for (size_t unit = 0; unit < units.size(); ++unit) {
    own_gradients_->watch(units[unit].empty() ? module : module_at(module, units[unit]), unit);
  }
  return {};
}

void DataParallel::bind(torch::nn::Module& module, const nn::ParallelPlan& plan,
                        const tensor::KeyMap& keys) {
  const TableUnits tables{.embedding = "", .head = untied_tables(module, plan).head};
  const std::vector<std::string> finished = finished_units(plan, tables);
  reductions_.emplace(group_, finished.size(),
                      BucketedReductions::Options{.first_bucket_bytes = options_.first_bucket_bytes,
                                                  .bucket_bytes = options_.bucket_bytes,
                                                  .trace = options_.trace});
  for (size_t unit = 0; unit < finished.size(); ++unit) {
    if (!finished[unit].empty()) reductions_->watch(module_at(module, finished[unit]), unit);
  }
  const std::vector<FlatParameters> groups = flat_parameters(module, plan, tables);
  const std::vector<at::Tensor> laid = begin_gradients(module, groups, finished);
  at::NoGradGuard no_grad;
  for (size_t g = 0; g < groups.size(); ++g) {
    const FlatParameters& group = groups[g];
    const FlatLayout layout = whole_layout(group);
    FlatShard values{group.unit, flat_zeros(layout.numel, group.dtype, options_.device),
                     segments_in(layout, keys, 0, layout.numel)};
    num_parameters_ += group.numel();
    num_trained_parameters_ += group.is_trained ? group.numel() : 0;
    FlatShard gradients;
    if (group.is_trained) {
      gradients = {group.unit, laid.empty() ? make_gradients(group, finished) : laid[g],
                   values.segments};
    }
    bool has_values = false;
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      at::Tensor parameter = group.parameters[i].second;
      const std::vector<int64_t> sizes = parameter.sizes().vec();
      const at::Tensor own = alias(values.buffer, layout.entries[i].offset, sizes);
      refuse_owned(parameter, group.parameters[i].first);
      if (!tensor::is_placeholder(parameter)) {
        own.copy_(parameter);
        has_values = true;
      }
      parameter.set_data(own);
      if (group.is_trained) {
        bound_.emplace_back(parameter, alias(gradients.buffer, layout.entries[i].offset, sizes));
        parameter.mutable_grad() = bound_.back().second;
      }
    }
    owners_.emplace_back(values.buffer);
    if (has_values && group_.size() > 1) group_.broadcast(values.buffer, 0);
    if (group.is_trained) {
      trained_.push_back(values);
      gradients_.push_back(std::move(gradients));
    }
    parameters_.push_back(std::move(values));
    if (own_gradients_) own_gradients_->release();
  }
}

void DataParallel::begin_micro_batch(bool is_last) {
  for (auto& [parameter, gradient] : bound_) {
    // torch::nn::Module::zero_grad() takes gradients off.
    if (!parameter.grad().defined()) parameter.mutable_grad() = gradient;
  }
  reductions_->begin_micro_batch(is_last);
}

void DataParallel::zero_gradients() {
  if (own_gradients_) own_gradients_->release();
  for (at::Tensor& arena : gradient_arenas_) arena.zero_();
}

void DataParallel::keep_gradients() {
  if (own_gradients_) own_gradients_->keep();
}

void DataParallel::allocate_gradients() {
  if (own_gradients_) own_gradients_->allocate();
}

void DataParallel::reduce_gradients() {
  reductions_->finish();
  allocate_gradients();  // zeros of units that the step has not used
}

double DataParallel::gradient_norm() const {
  tensor::check_gradients(gradients_);
  double sum = 0;
  for (const double squares : kernels::sums_of_squares(gradients_)) sum += squares;
  return std::sqrt(sum);
}

}  // namespace automodel::distributed

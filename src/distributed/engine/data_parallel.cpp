#include "distributed/engine/data_parallel.h"

#include <cmath>
#include <map>

#include "core/error.h"
#include "distributed/fsdp/flat_units.h"
#include "kernels/optimizer/optimizer_step.h"

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

/// Where the gradients of a flat group are stored: an arena and the first element in it.
struct DataParallel::Place {
  size_t arena = 0;
  int64_t begin = 0;
};

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

/// Gradients of one dtype share an arena, so that a bucket may span units.
std::vector<DataParallel::Place> DataParallel::lay_gradients(
    const std::vector<FlatParameters>& groups, const std::vector<std::string>& finished) {
  std::vector<Place> places(groups.size());
  std::map<at::ScalarType, std::pair<int64_t, std::vector<GradientRun>>> arenas;
  for (size_t unit = 0; unit < finished.size(); ++unit) {
    for (size_t i = 0; i < groups.size(); ++i) {
      if (!groups[i].is_trained || groups[i].unit != finished[unit]) continue;
      auto& [numel, runs] = arenas[groups[i].dtype];
      places[i].begin = numel;
      numel += whole_layout(groups[i]).numel;
      runs.push_back({unit, numel});
    }
  }
  for (const auto& [dtype, arena] : arenas) {
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].dtype == dtype) places[i].arena = gradient_arenas_.size();
    }
    gradient_arenas_.push_back(flat_zeros(arena.first, dtype, options_.device));
    reductions_->add(gradient_arenas_.back(), arena.second);
  }
  return places;
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
  std::vector<FlatParameters> groups = flat_parameters(module, plan, tables);
  const std::vector<Place> places = lay_gradients(groups, finished);
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
      const at::Tensor& arena = gradient_arenas_[places[g].arena];
      gradients = {group.unit, arena.narrow(0, places[g].begin, layout.numel), values.segments};
    }
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      at::Tensor parameter = group.parameters[i].second;
      const std::vector<int64_t> sizes = parameter.sizes().vec();
      parameter.set_data(alias(values.buffer, layout.entries[i].offset, sizes));
      if (group.is_trained) {
        parameter.mutable_grad() = alias(gradients.buffer, layout.entries[i].offset, sizes);
      }
    }
    if (group.is_trained) {
      trained_.push_back(values);
      gradients_.push_back(std::move(gradients));
    }
    parameters_.push_back(std::move(values));
  }
}

void DataParallel::zero_gradients() {
  for (at::Tensor& arena : gradient_arenas_) arena.zero_();
}

void DataParallel::reduce_gradients() {
  reductions_->finish();
}

double DataParallel::gradient_norm() const {
  double sum = 0;
  for (const double squares : kernels::sums_of_squares(gradients_)) sum += squares;
  return std::sqrt(sum);
}

}  // namespace automodel::distributed

#include "distributed/data_parallel.h"

#include <cmath>
#include <map>

#include "core/error.h"
#include "distributed/flat_units.h"
#include "kernels/optimizer.h"

namespace automodel::distributed {

namespace {

using tensor::FlatShard;

FlatLayout whole_layout(const FlatGroup& group) {
  return group.layout(static_cast<int64_t>(c10::elementSize(group.dtype)), 1);
}

}  // namespace

DataParallel::DataParallel(torch::nn::Module& module, const nn::ParallelPlan& plan,
                           const tensor::KeyMap& keys, comm::ProcessGroup group,
                           const DataParallelOptions& options)
    : Engine(std::move(group)), options_(options) {
  bind(module, plan, keys);
}

void DataParallel::bind(torch::nn::Module& module, const nn::ParallelPlan& plan,
                        const tensor::KeyMap& keys) {
  std::vector<FlatGroup> groups = group_parameters(module, plan);
  // Gradients of one dtype share an arena, so that buckets may span units.
  std::map<at::ScalarType, int64_t> arena_sizes;
  for (const FlatGroup& group : groups) {
    if (group.is_trained) arena_sizes[group.dtype] += whole_layout(group).numel;
  }
  std::map<at::ScalarType, std::pair<at::Tensor, int64_t>> arenas;
  for (const auto& [dtype, numel] : arena_sizes) {
    gradient_arenas_.push_back(flat_zeros(numel, dtype, options_.device));
    arenas[dtype] = {gradient_arenas_.back(), 0};
  }
  at::NoGradGuard no_grad;
  for (FlatGroup& group : groups) {
    const FlatLayout layout = whole_layout(group);
    FlatShard values{group.unit, flat_zeros(layout.numel, group.dtype, options_.device),
                     segments_in(layout, keys, 0, layout.numel)};
    num_parameters_ += group.numel();
    num_trained_parameters_ += group.is_trained ? group.numel() : 0;
    FlatShard gradients;
    if (group.is_trained) {
      auto& [arena, used] = arenas[group.dtype];
      gradients = {group.unit, arena.narrow(0, used, layout.numel), values.segments};
      used += layout.numel;
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
  if (group_.size() == 1) return;
  for (at::Tensor& arena : gradient_arenas_) {
    const auto element_size = static_cast<int64_t>(arena.element_size());
    for (const Bucket& bucket : make_buckets(arena.numel(), element_size,
                                             options_.first_bucket_bytes, options_.bucket_bytes)) {
      at::Tensor piece = arena.narrow(0, bucket.begin, bucket.end - bucket.begin);
      group_.all_reduce(piece, comm::ReduceOp::kAvg);
    }
  }
}

double DataParallel::gradient_norm() const {
  double sum = 0;
  for (const FlatShard& shard : gradients_) sum += kernels::sum_of_squares(shard.buffer);
  return std::sqrt(sum);
}

}  // namespace automodel::distributed

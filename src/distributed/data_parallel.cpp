#include "distributed/data_parallel.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <map>
#include <numeric>

#include "core/error.h"
#include "distributed/flat_layout.h"
#include "kernels/optimizer.h"
#include "tensor/memory.h"

namespace automodel::distributed {

namespace {

using tensor::FlatSegment;
using tensor::FlatShard;

at::Tensor zeros(int64_t numel, at::ScalarType dtype, at::Device device) {
  if (device.is_cpu()) return tensor::mapped_zeros(numel, dtype);
  return at::zeros({numel}, at::TensorOptions().dtype(dtype).device(device));
}

/// A view of flat memory with a version counter of its own: set_ does not share it as view() does,
/// so writes to the buffer are never seen as in-place changes of a parameter.
at::Tensor alias(const at::Tensor& buffer, int64_t offset, at::IntArrayRef sizes) {
  at::NoGradGuard no_grad;
  at::Tensor view = at::empty({0}, buffer.options());
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t dim = sizes.size(); dim-- > 1;) strides[dim - 1] = strides[dim] * sizes[dim];
  return view.set_(buffer.storage(), buffer.storage_offset() + offset, sizes, strides);
}

/// Parameters that share a buffer: same unit, dtype and whether they are trained.
struct Group {
  std::string unit;
  at::ScalarType dtype;
  bool is_trained;
  std::vector<std::pair<std::string, at::Tensor>> parameters;
};

/// The plan's block that a parameter belongs to; "" for the root.
std::string unit_of(const std::string& parameter, const nn::ParallelPlan& plan) {
  for (const std::string& block : plan.blocks) {
    if (parameter.starts_with(block) && parameter.size() > block.size() &&
        parameter[block.size()] == '.') {
      return block;
    }
  }
  return "";
}

std::vector<Group> group_parameters(torch::nn::Module& module, const nn::ParallelPlan& plan) {
  std::vector<Group> groups;
  for (const auto& item : module.named_parameters()) {
    const std::string unit = unit_of(item.key(), plan);
    const at::Tensor& value = item.value();
    auto it = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return group.unit == unit && group.dtype == value.scalar_type() &&
             group.is_trained == value.requires_grad();
    });
    if (it == groups.end()) {
      groups.push_back({unit, value.scalar_type(), value.requires_grad(), {}});
      it = std::prev(groups.end());
    }
    it->parameters.emplace_back(item.key(), value);
  }
  return groups;
}

FlatLayout layout_of(const Group& group) {
  std::vector<LayoutItem> items;
  for (const auto& [name, value] : group.parameters) items.push_back({name, value.numel()});
  return lay_out(items, static_cast<int64_t>(c10::elementSize(group.dtype)), 1);
}

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

std::vector<FlatSegment> segments_of(const FlatLayout& layout, const tensor::KeyMap& keys) {
  std::vector<FlatSegment> segments;
  for (const LayoutEntry& entry : layout.entries) {
    int64_t covered = 0;
    for (const tensor::ParameterPart& part : keys) {
      if (part.parameter != entry.parameter) continue;
      const int64_t numel = product(part.shape);
      const int64_t row = part.shape.empty() || part.shape[0] == 0 ? 1 : numel / part.shape[0];
      segments.push_back(
          {part.name, tensor::ShardSpec::whole(part.shape), entry.offset + part.row_begin * row});
      covered += numel;
    }
    AM_CHECK(covered == entry.numel, "the key map covers ", covered, " of ", entry.numel,
             " elements of ", entry.parameter);
  }
  return segments;
}

int64_t count_elements(const std::vector<FlatShard>& shards) {
  int64_t count = 0;
  for (const FlatShard& shard : shards) {
    for (const FlatSegment& segment : shard.segments) count += segment.spec.numel();
  }
  return count;
}

}  // namespace

DataParallel::DataParallel(torch::nn::Module& module, const nn::ParallelPlan& plan,
                           const tensor::KeyMap& keys, comm::ProcessGroup group,
                           const DataParallelOptions& options)
    : group_(std::move(group)), options_(options) {
  bind(module, plan, keys);
}

void DataParallel::bind(torch::nn::Module& module, const nn::ParallelPlan& plan,
                        const tensor::KeyMap& keys) {
  std::vector<Group> groups = group_parameters(module, plan);
  // Gradients of one dtype share an arena, so that buckets may span units.
  std::map<at::ScalarType, int64_t> arena_sizes;
  for (const Group& group : groups) {
    if (group.is_trained) arena_sizes[group.dtype] += layout_of(group).numel;
  }
  std::map<at::ScalarType, std::pair<at::Tensor, int64_t>> arenas;
  for (const auto& [dtype, numel] : arena_sizes) {
    gradient_arenas_.push_back(zeros(numel, dtype, options_.device));
    arenas[dtype] = {gradient_arenas_.back(), 0};
  }
  at::NoGradGuard no_grad;
  for (Group& group : groups) {
    const FlatLayout layout = layout_of(group);
    FlatShard values{group.unit, zeros(layout.numel, group.dtype, options_.device),
                     segments_of(layout, keys)};
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

int64_t DataParallel::num_parameters() const {
  return count_elements(parameters_);
}
int64_t DataParallel::num_trained_parameters() const {
  return count_elements(trained_);
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

void DataParallel::broadcast_parameters() {
  if (group_.size() == 1) return;
  for (FlatShard& shard : parameters_) group_.broadcast(shard.buffer, 0);
}

}  // namespace automodel::distributed

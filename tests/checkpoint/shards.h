#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tensor/shard_spec.h"

namespace automodel::checkpoint::test_shards {

using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

/// One flat shard of whole tensors, with a little padding between them, zeroed.
inline tensor::FlatShard whole(const Shapes& shapes, at::ScalarType dtype) {
  tensor::FlatShard shard;
  int64_t offset = 0;
  for (const auto& [name, shape] : shapes) {
    const tensor::ShardSpec spec = tensor::ShardSpec::whole(shape);
    shard.segments.push_back({name, spec, offset});
    offset += spec.numel() + 3;
  }
  shard.buffer = at::zeros({offset}, at::TensorOptions().dtype(dtype));
  return shard;
}

/// Rank `rank`'s part when the tensors, one behind the other, are cut into `world` equal ranges.
inline tensor::FlatShard part(const Shapes& shapes, at::ScalarType dtype, int rank, int world) {
  int64_t total = 0;
  for (const auto& [name, shape] : shapes) total += tensor::ShardSpec::whole(shape).numel();
  const int64_t each = (total + world - 1) / world;
  const int64_t begin = rank * each;
  tensor::FlatShard shard;
  shard.buffer = at::zeros({each}, at::TensorOptions().dtype(dtype));
  int64_t position = 0;
  for (const auto& [name, shape] : shapes) {
    tensor::ShardSpec spec = tensor::ShardSpec::whole(shape);
    const int64_t end = position + spec.numel();
    const int64_t from = std::clamp(begin, position, end);
    const int64_t to = std::clamp(begin + each, position, end);
    if (to > from || (spec.numel() == 0 && rank == 0)) {
      spec.flat_begin = from - position;
      spec.flat_end = to - position;
      shard.segments.push_back({name, spec, to > from ? from - begin : 0});
    }
    position = end;
  }
  return shard;
}

/// Rank `rank`'s part when the last dim of every tensor is cut into `world` boxes.
inline tensor::FlatShard columns(const Shapes& shapes, at::ScalarType dtype, int rank, int world) {
  tensor::FlatShard shard;
  int64_t offset = 0;
  for (const auto& [name, shape] : shapes) {
    tensor::ShardSpec spec = tensor::ShardSpec::whole(shape);
    const int64_t last = shape.back();
    const int64_t each = (last + world - 1) / world;
    spec.box_offset.back() = std::min(last, rank * each);
    spec.box_shape.back() = std::min(last, (rank + 1) * each) - spec.box_offset.back();
    spec.flat_end = spec.box_numel();
    shard.segments.push_back({name, spec, offset});
    offset += spec.numel();
  }
  shard.buffer = at::zeros({offset}, at::TensorOptions().dtype(dtype));
  return shard;
}

/// Rank `rank`'s part when the rows of every tensor are those of two matrices and the rows of each
/// are cut into `world` runs: two boxes of one tensor, if neither is empty.
inline tensor::FlatShard fused(const Shapes& shapes, at::ScalarType dtype, int rank, int world) {
  tensor::FlatShard shard;
  int64_t offset = 0;
  for (const auto& [name, shape] : shapes) {
    const int64_t border = shape[0] / 2;
    std::vector<std::pair<int64_t, int64_t>> matrices = {{0, border}};
    if (border < shape[0]) matrices.emplace_back(border, shape[0]);
    for (const auto& [begin, end] : matrices) {
      tensor::ShardSpec spec = tensor::ShardSpec::whole(shape);
      spec.box_offset[0] = begin + (end - begin) * rank / world;
      spec.box_shape[0] = begin + (end - begin) * (rank + 1) / world - spec.box_offset[0];
      spec.flat_end = spec.box_numel();
      shard.segments.push_back({name, spec, offset});
      offset += spec.numel();
    }
  }
  shard.buffer = at::zeros({offset}, at::TensorOptions().dtype(dtype));
  return shard;
}

/// Fills every element with a number that its name's place and its global position give.
inline void number(tensor::FlatShard& shard, const Shapes& shapes, int64_t bias) {
  for (const tensor::FlatSegment& segment : shard.segments) {
    int64_t k = 0;
    while (shapes[static_cast<size_t>(k)].first != segment.fqn) ++k;
    for (const tensor::ShardRun& run : tensor::shard_runs(segment.spec)) {
      const int64_t first = run.global + k * 1000 + bias;
      shard.view(segment)
          .narrow(0, run.local, run.numel)
          .copy_(at::arange(first, first + run.numel));
    }
  }
}

}  // namespace automodel::checkpoint::test_shards

#include "optim/state_buffer.h"

#include <ATen/ATen.h>

#include <utility>

#include "tensor/memory.h"

namespace automodel::optim {

at::Tensor state_buffer(const tensor::FlatShard& shard, int64_t numel, at::ScalarType dtype) {
  return shard.buffer.device().is_cpu() && numel > 0
             ? tensor::mapped_zeros(numel, dtype)
             : at::zeros({numel}, shard.buffer.options().dtype(dtype));
}

tensor::FlatShard packed_state(const tensor::FlatShard& shard, at::ScalarType dtype,
                               const StateSpec& spec) {
  tensor::FlatShard state{shard.unit, {}, {}};
  int64_t numel = 0;
  for (const tensor::FlatSegment& segment : shard.segments) {
    auto held = spec(segment);
    if (!held) continue;
    tensor::FlatSegment& added = state.segments.emplace_back(segment);
    added.spec = std::move(*held);
    added.offset = numel;
    numel += added.spec.numel();
  }
  state.buffer = state_buffer(shard, numel, dtype);
  return state;
}

std::vector<SegmentRun> segment_runs(std::span<const tensor::FlatShard> shards,
                                     std::span<const ParamGroupOverride> overrides) {
  std::vector<SegmentRun> parts;
  for (const ParameterRun& run : resolve_runs(shards, overrides)) {
    for (const tensor::FlatSegment& segment : shards[run.shard].segments) {
      if (segment.offset < run.begin || segment.offset >= run.end) continue;
      SegmentRun part{run, &segment};
      part.run.begin = segment.offset;
      part.run.end = segment.offset + segment.spec.numel();
      parts.push_back(part);
    }
  }
  return parts;
}

}  // namespace automodel::optim

#include "optim/state_buffer.h"

#include <ATen/ATen.h>

#include "tensor/memory.h"

namespace automodel::optim {

at::Tensor state_buffer(const tensor::FlatShard& shard, int64_t numel, at::ScalarType dtype) {
  return shard.buffer.device().is_cpu() && numel > 0
             ? tensor::mapped_zeros(numel, dtype)
             : at::zeros({numel}, shard.buffer.options().dtype(dtype));
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

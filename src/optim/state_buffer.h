#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "optim/optimizer.h"
#include "tensor/shard_spec.h"

namespace automodel::optim {

/// Zeros [numel] on the device of a shard's parameters, for state beside them; on a CPU pages that
/// take no memory until they are written.
at::Tensor state_buffer(const tensor::FlatShard& shard, int64_t numel, at::ScalarType dtype);

/// What a rank holds of a state beside its part of a tensor; absent: this tensor has no such state.
using StateSpec = std::function<std::optional<tensor::ShardSpec>(const tensor::FlatSegment& part)>;

/// A shard's zeroed state, whose tensors follow each other without gaps, in the parameters' order.
tensor::FlatShard packed_state(const tensor::FlatShard& shard, at::ScalarType dtype,
                               const StateSpec& spec);

/// The part of one tensor that a rank holds, and its hyper-parameters.
struct SegmentRun {
  ParameterRun run;  ///< its elements in the unit's buffer
  const tensor::FlatSegment* segment = nullptr;
};

/// resolve_runs() cut into a run for each segment, without padding. Segments stay the shards'.
std::vector<SegmentRun> segment_runs(std::span<const tensor::FlatShard> shards,
                                     std::span<const ParamGroupOverride> overrides);

}  // namespace automodel::optim

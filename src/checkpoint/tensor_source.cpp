#include "checkpoint/tensor_source.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "core/error.h"

namespace automodel::checkpoint {

int64_t TensorInfo::numel() const {
  int64_t numel = 1;
  for (const int64_t dim : shape) numel *= dim;
  return numel;
}

uint64_t TensorInfo::num_bytes() const {
  return static_cast<uint64_t>(numel()) * c10::elementSize(dtype);
}

ShardSource::ShardSource(std::span<const tensor::FlatShard> shards) {
  for (const tensor::FlatShard& shard : shards) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      AM_CHECK(segment.spec.is_whole(), segment.fqn);
      AM_CHECK(by_name_.emplace(segment.fqn, places_.size()).second, segment.fqn);
      places_.push_back({&shard, &segment});
    }
  }
}

std::vector<TensorInfo> ShardSource::tensors() const {
  std::vector<TensorInfo> tensors;
  for (const Place& place : places_) {
    tensors.push_back(
        {place.segment->fqn, place.shard->buffer.scalar_type(), place.segment->spec.global_shape});
  }
  return tensors;
}

void ShardSource::read(std::string_view name, int64_t first, at::Tensor out) const {
  const auto found = by_name_.find(std::string(name));
  AM_CHECK(found != by_name_.end(), name);
  const Place& place = places_[found->second];
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  out.copy_(place.shard->view(*place.segment).narrow(0, first, out.numel()));
}

}  // namespace automodel::checkpoint

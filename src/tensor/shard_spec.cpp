#include "tensor/shard_spec.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/error.h"
#include "tensor/shard_runs.h"

namespace automodel::tensor {

namespace {
int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}
}  // namespace

ShardSpec ShardSpec::whole(std::vector<int64_t> shape) {
  ShardSpec spec;
  spec.box_offset.assign(shape.size(), 0);
  spec.box_shape = shape;
  spec.flat_end = product(shape);
  spec.global_shape = std::move(shape);
  return spec;
}

int64_t ShardSpec::box_numel() const {
  return product(box_shape);
}
int64_t ShardSpec::global_numel() const {
  return product(global_shape);
}

bool ShardSpec::is_whole() const {
  return box_shape == global_shape && flat_begin == 0 && flat_end == global_numel();
}

std::vector<ShardRun> shard_runs(const ShardSpec& spec) {
  std::vector<ShardRun> runs;
  for (ShardRunCursor cursor(spec); !cursor.is_at_end(); cursor.step()) {
    runs.push_back(cursor.run());
  }
  return runs;
}

void check_gradients(std::span<const FlatShard> gradients) {
  for (const FlatShard& shard : gradients) {
    if (shard.buffer.numel() == 0 || shard.buffer.storage().nbytes() > 0) continue;
    throw UserError(cat(kAbsentGradients, ": no backward has given any since"));
  }
}

at::Tensor FlatShard::view(const FlatSegment& segment) const {
  return buffer.narrow(0, segment.offset, segment.spec.numel());
}

at::Tensor placeholder(at::IntArrayRef sizes, at::ScalarType dtype) {
  at::Tensor tensor = at::empty({0}, at::TensorOptions().dtype(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

void resize_placeholder(const at::Tensor& placeholder, at::IntArrayRef sizes) {
  AM_CHECK(is_placeholder(placeholder), "a tensor of [", join(placeholder.sizes().vec()),
           "] has memory already");
  placeholder.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
}

bool is_placeholder(const at::Tensor& tensor) {
  return tensor.numel() > 0 && tensor.storage().nbytes() == 0;
}

}  // namespace automodel::tensor

#include "tensor/shard_spec.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/error.h"

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
  if (spec.numel() <= 0) return runs;
  // Dims behind `split` are whole in the box, so boxes rows of `row` elements are contiguous.
  const auto dims = static_cast<int64_t>(spec.global_shape.size());
  int64_t row = 1;
  int64_t split = dims;
  while (split > 0) {
    --split;
    row *= spec.box_shape[split];
    if (spec.box_shape[split] != spec.global_shape[split]) break;
  }
  for (int64_t local = spec.flat_begin; local < spec.flat_end;) {
    const int64_t box_row = local / row;
    const int64_t inside = local % row;
    const int64_t count = std::min(row - inside, spec.flat_end - local);
    // Coordinates of the row's first element: those of dims < split come from the row number.
    int64_t global = 0;
    int64_t stride = 1;
    int64_t rest = box_row;
    for (int64_t dim = dims - 1; dim >= 0; --dim) {
      int64_t coordinate = spec.box_offset[dim];
      if (dim < split) {
        coordinate += rest % spec.box_shape[dim];
        rest /= spec.box_shape[dim];
      }
      global += coordinate * stride;
      stride *= spec.global_shape[dim];
    }
    runs.push_back({global + inside, local - spec.flat_begin, count});
    local += count;
  }
  return runs;
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

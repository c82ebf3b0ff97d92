#include "tensor/shard_runs.h"

#include <algorithm>

namespace automodel::tensor {

ShardRunCursor::ShardRunCursor(const ShardSpec& spec) : spec_(spec), next_local_(spec.flat_begin) {
  // Dims behind `split` are whole in the box, so boxes rows of `row` elements are contiguous.
  split_ = static_cast<int64_t>(spec.global_shape.size());
  while (split_ > 0) {
    const auto dim = static_cast<size_t>(--split_);
    row_ *= spec.box_shape[dim];
    if (spec.box_shape[dim] != spec.global_shape[dim]) break;
  }
  step();
}

void ShardRunCursor::step() {
  const int64_t local = next_local_;
  if (local >= spec_.flat_end) {
    run_ = {};
    return;
  }
  const int64_t inside = local % row_;
  const int64_t count = std::min(row_ - inside, spec_.flat_end - local);
  // Coordinates of the row's first element: those of dims < split come from the row number.
  int64_t global = 0;
  int64_t stride = 1;
  int64_t rest = local / row_;
  for (auto dim = static_cast<int64_t>(spec_.global_shape.size()) - 1; dim >= 0; --dim) {
    const auto i = static_cast<size_t>(dim);
    int64_t coordinate = spec_.box_offset[i];
    if (dim < split_) {
      coordinate += rest % spec_.box_shape[i];
      rest /= spec_.box_shape[i];
    }
    global += coordinate * stride;
    stride *= spec_.global_shape[i];
  }
  run_ = {global + inside, local - spec_.flat_begin, count};
  next_local_ += count;
}

}  // namespace automodel::tensor

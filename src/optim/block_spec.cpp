#include "optim/block_spec.h"

#include <functional>
#include <numeric>

#include "core/divide.h"
#include "core/error.h"

namespace automodel::optim {

namespace {

using tensor::ShardSpec;

/// The last dims of a tensor that are counted in blocks together.
struct BlockedDims {
  int64_t block = 1;  ///< elements
  size_t first = 0;   ///< the dim with which they begin
  int64_t inner = 1;  ///< elements of one index of that dim

  bool is_border(int64_t element) const { return element % block == 0; }
};

/// As few dims as make whole blocks; all of them when none do.
BlockedDims blocked_dims(const std::vector<int64_t>& shape, int64_t block) {
  int64_t inner = 1;
  for (size_t dim = shape.size(); dim-- > 0; inner *= shape[dim]) {
    if (dim == 0 || shape[dim] * inner % block == 0) return {block, dim, inner};
  }
  return {block};
}

/// Whether the box begins and ends where blocks of the whole tensor do.
bool has_whole_blocks(const ShardSpec& spec, const BlockedDims& dims) {
  if (spec.global_shape.empty()) return true;
  for (size_t dim = dims.first + 1; dim < spec.global_shape.size(); ++dim) {
    if (spec.box_shape[dim] != spec.global_shape[dim]) return false;
  }
  const int64_t begin = spec.box_offset[dims.first];
  const int64_t end = begin + spec.box_shape[dims.first];
  return dims.is_border(begin * dims.inner) &&
         (end == spec.global_shape[dims.first] || dims.is_border(end * dims.inner));
}

ShardSpec of_whole_tensor(const ShardSpec& spec, const BlockedDims& dims) {
  const auto first = static_cast<int64_t>(dims.first);
  const auto leading = [&](const std::vector<int64_t>& sizes) {
    return std::vector<int64_t>(sizes.begin(), sizes.begin() + first);
  };
  ShardSpec blocks{leading(spec.global_shape), leading(spec.box_offset), leading(spec.box_shape)};
  const bool is_scalar = spec.global_shape.empty();
  const auto last = [&](const std::vector<int64_t>& sizes, int64_t of_scalar) {
    return num_blocks(is_scalar ? of_scalar : sizes[dims.first] * dims.inner, dims.block);
  };
  blocks.global_shape.push_back(last(spec.global_shape, 1));
  blocks.box_offset.push_back(last(spec.box_offset, 0));
  blocks.box_shape.push_back(last(spec.box_shape, 1));
  return blocks;
}

ShardSpec of_box(const tensor::FlatSegment& part, int64_t block) {
  const ShardSpec& spec = part.spec;
  ShardSpec blocks;
  for (size_t dim = 0; dim < spec.global_shape.size(); ++dim) {
    const int64_t size = spec.box_shape[dim];
    if (spec.global_shape[dim] % size != 0 || spec.box_offset[dim] % size != 0) {
      throw UserError(cat("the optimizer keeps averages in 8 bits by blocks of ", block,
                          " elements, and ", part.fqn, " [", join(spec.global_shape),
                          "] is split over ranks within blocks into parts of different sizes: take "
                          "a tp_size or ep_size that divides it, or an optimizer without 8 bits"));
    }
    blocks.global_shape.push_back(spec.global_shape[dim] / size);
    blocks.box_offset.push_back(spec.box_offset[dim] / size);
    blocks.box_shape.push_back(1);
  }
  blocks.global_shape.push_back(num_blocks(spec.box_numel(), block));
  blocks.box_offset.push_back(0);
  blocks.box_shape.push_back(blocks.global_shape.back());
  return blocks;
}

}  // namespace

int64_t num_blocks(int64_t numel, int64_t block) {
  return ceil_div(numel, block);
}

ShardSpec block_spec(const tensor::FlatSegment& part, int64_t block) {
  const ShardSpec& spec = part.spec;
  const BlockedDims dims = blocked_dims(spec.global_shape, block);
  if (!dims.is_border(spec.flat_begin) ||
      (!dims.is_border(spec.flat_end) && spec.flat_end != spec.box_numel())) {
    throw UserError(cat("the optimizer keeps averages in 8 bits by blocks of ", block,
                        " elements, and a border between data-parallel ranks (elements ",
                        spec.flat_begin, " to ", spec.flat_end, " of ", spec.box_numel(),
                        ") cuts a block of ", part.fqn,
                        ": take the strategy ddp, another number of ranks, or an optimizer without "
                        "8 bits"));
  }
  ShardSpec blocks =
      has_whole_blocks(spec, dims) ? of_whole_tensor(spec, dims) : of_box(part, block);
  blocks.flat_begin = spec.flat_begin / block;
  blocks.flat_end = num_blocks(spec.flat_end, block);
  return blocks;
}

}  // namespace automodel::optim

#pragma once

#include "kernels/cpu/eight_bit_block.h"
#include "kernels/cpu/flash_group.h"
#include "tensor/shard_spec.h"

namespace automodel::optim {

/// Elements that share a factor of an average in 8 bits: of bitsandbytes' optimizers.
inline constexpr int64_t kStateBlock = kernels::kEightBitBlock;
/// Elements that share a scale of an average in 8 bits: of FlashAdamW.
inline constexpr int64_t kStateGroup = kernels::kFlashGroup;

/// Blocks of `block` elements that hold so many; the last may be shorter.
int64_t num_blocks(int64_t numel, int64_t block);

/// Which of a tensor's factors belong to a part of it: one for each `block`
/// elements, counted from the part's first element.
///
/// Where the part's borders are borders between blocks of the whole tensor, read row by row, the
/// factors are these blocks', and the same on every mesh: their global shape is the tensor's, with
/// as few of the last dims as make whole blocks replaced by one that counts them. Where tensor or
/// expert parallelism cuts blocks, they are blocks of the rank's box: their global shape is the
/// number of boxes along each dim, and of the blocks in a box. So a part on a mesh that cuts a
/// tensor otherwise has factors of another shape.
///
/// Throws UserError when a data-parallel border lies within a block, or when boxes that cut blocks
/// have different sizes.
tensor::ShardSpec block_spec(const tensor::FlatSegment& part, int64_t block);

}  // namespace automodel::optim

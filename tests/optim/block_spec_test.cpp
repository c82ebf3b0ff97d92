#include "optim/block_spec.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace automodel::optim {
namespace {

using tensor::ShardSpec;

/// The blocks of a box of "w" [global], of which elements [begin, end) are held; end 0: to its end.
ShardSpec blocks_of(std::vector<int64_t> global, std::vector<int64_t> offset,
                    std::vector<int64_t> box, int64_t begin = 0, int64_t end = 0) {
  ShardSpec spec{std::move(global), std::move(offset), std::move(box), begin, end};
  if (end == 0) spec.flat_end = spec.box_numel();
  return block_spec({"w", spec, 0}, kStateBlock);
}

TEST(BlockSpec, AWholeTensorsBlocksAreCountedInItsLastDims) {
  EXPECT_EQ(blocks_of({8, 512}, {0, 0}, {8, 512}), ShardSpec::whole({8, 2}));
  EXPECT_EQ(blocks_of({8, 96}, {0, 0}, {8, 96}), ShardSpec::whole({3}));
  EXPECT_EQ(blocks_of({4, 8, 64}, {0, 0, 0}, {4, 8, 64}), ShardSpec::whole({4, 2}));
  EXPECT_EQ(blocks_of({4300}, {0}, {4300}), ShardSpec::whole({17}));
  EXPECT_EQ(blocks_of({3, 100}, {0, 0}, {3, 100}), ShardSpec::whole({2}));
  EXPECT_EQ(block_spec({"w", ShardSpec::whole({}), 0}, kStateBlock), ShardSpec::whole({1}));
}

TEST(BlockSpec, ADataParallelPartHasARangeOfThem) {
  EXPECT_EQ(blocks_of({8, 96}, {0, 0}, {8, 96}, 256, 768), (ShardSpec{{3}, {0}, {3}, 1, 3}));
  EXPECT_EQ(blocks_of({4300}, {0}, {4300}, 2048, 4300), (ShardSpec{{17}, {0}, {17}, 8, 17}));
}

TEST(BlockSpec, APieceThatBeginsAtABlockHasThoseOfTheWholeTensor) {
  // Columns, rows, and rows of each of several matrices.
  EXPECT_EQ(blocks_of({8, 1024}, {0, 512}, {8, 512}), (ShardSpec{{8, 4}, {0, 2}, {8, 2}, 0, 16}));
  EXPECT_EQ(blocks_of({16, 96}, {8, 0}, {8, 96}), (ShardSpec{{6}, {3}, {3}, 0, 3}));
  EXPECT_EQ(blocks_of({4, 8, 64}, {0, 4, 0}, {4, 4, 64}),
            (ShardSpec{{4, 2}, {0, 1}, {4, 1}, 0, 4}));
  // The last rows, of which there are no whole blocks.
  EXPECT_EQ(blocks_of({11, 96}, {8, 0}, {3, 96}), (ShardSpec{{5}, {3}, {2}, 0, 2}));
}

TEST(BlockSpec, APieceThatCutsBlocksHasItsOwn) {
  EXPECT_EQ(blocks_of({8, 192}, {0, 96}, {8, 96}),
            (ShardSpec{{1, 2, 3}, {0, 1, 0}, {1, 1, 3}, 0, 3}));
  EXPECT_EQ(blocks_of({8, 100}, {4, 0}, {4, 100}, 256, 400),
            (ShardSpec{{2, 1, 2}, {1, 0, 0}, {1, 1, 2}, 1, 2}));
}

TEST(BlockSpec, WhatHasNoWholeBlocksIsRefused) {
  EXPECT_EQ(
      test::error_of<UserError>([] {
        blocks_of({8, 96}, {0, 0}, {8, 96}, 0, 400);
      }),
      "the optimizer keeps averages in 8 bits by blocks of 256 elements, and a border between "
      "data-parallel ranks (elements 0 to 400 of 768) cuts a block of w: take the strategy "
      "ddp, another number of ranks, or an optimizer without 8 bits");
  EXPECT_EQ(
      test::error_of<UserError>([] {
        blocks_of({8, 96}, {0, 0}, {8, 96}, 16, 768);
      }),
      "the optimizer keeps averages in 8 bits by blocks of 256 elements, and a border between "
      "data-parallel ranks (elements 16 to 768 of 768) cuts a block of w: take the strategy "
      "ddp, another number of ranks, or an optimizer without 8 bits");
  EXPECT_EQ(test::error_of<UserError>([] {
              blocks_of({5, 100}, {3, 0}, {2, 100});
            }),
            "the optimizer keeps averages in 8 bits by blocks of 256 elements, and w [5, 100] is "
            "split over ranks within blocks into parts of different sizes: take a tp_size or "
            "ep_size that divides it, or an optimizer without 8 bits");
}

}  // namespace
}  // namespace automodel::optim

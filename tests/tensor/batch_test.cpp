#include "tensor/batch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace automodel::tensor {
namespace {

/// Two packs of 6 tokens: documents of 4 and 2, and of 3 and 3.
Batch packs() {
  Batch batch;
  batch.input_ids = at::zeros({2, 6}, at::kLong);
  batch.labels = at::zeros({2, 6}, at::kLong);
  batch.position_ids =
      at::tensor({0, 1, 2, 3, 0, 1, 0, 1, 2, 0, 1, 2}, at::TensorOptions().dtype(at::kLong))
          .view({2, 6});
  return batch;
}

TEST(BatchTest, NeedsThePositionsOfItsLongestDocument) {
  EXPECT_EQ(packs().needed_positions(), 4);
  EXPECT_EQ(packs().sequences(1, 1).needed_positions(), 3);
  Batch plain = packs();
  plain.position_ids = at::Tensor();
  EXPECT_EQ(plain.needed_positions(), 6);
  Batch part = packs();
  part.part = SequencePart{12, 9, {{0, 6}}};
  EXPECT_EQ(part.needed_positions(), 9);
}

TEST(BatchTest, PositionsThatLeaveTheHostAreCountedBefore) {
  const Batch moved = packs().to(at::kMeta);  // nothing can be read of it
  EXPECT_TRUE(moved.position_ids.is_meta());
  EXPECT_EQ(moved.needed_positions(), 4);
  EXPECT_FALSE(packs().to(at::kCPU).num_positions.has_value());
}

TEST(BatchTest, ScoredTokensGoWithTheWholeBatchOnly) {
  Batch batch = packs();
  batch.scored = at::tensor({1, 7}, at::TensorOptions().dtype(at::kLong));
  EXPECT_TRUE(batch.to(at::kMeta).scored.is_meta());
  EXPECT_FALSE(batch.sequences(0, 1).scored.defined());
}

}  // namespace
}  // namespace automodel::tensor

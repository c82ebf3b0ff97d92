#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "training/train_step.h"

namespace automodel::training {
namespace {

constexpr int64_t kIgnored = -100;

TEST(CountTokens, LeavesTheIgnoredTailOfEachSequenceOut) {
  tensor::Batch batch;
  batch.labels =
      at::tensor({-100, 1, 1, -100, -100, -100, -100, 2, 3, 4, 5, 6, -100, -100, -100}, at::kLong)
          .reshape({3, 5});
  const tensor::TokenCounts counts = count_tokens(batch, kIgnored);
  EXPECT_EQ(counts.num_tokens, 15 - 5);
  EXPECT_EQ(counts.num_label_tokens, 7);
}

/// Where padding and end of sequence are one id, the first token of a tokenizer's padding is
/// attended to but has no label.
TEST(CountTokens, AsksTheLabelsAndNotThePadding) {
  tensor::Batch batch;
  batch.labels = at::tensor({7, 8, -100, -100, -100, 7, -100, -100}, at::kLong).reshape({2, 4});
  batch.padding_mask =
      at::tensor({0, 0, 0, 1, 0, 0, 0, 1}, at::kLong).reshape({2, 4}).to(at::kBool);
  EXPECT_EQ(count_tokens(batch, kIgnored).num_tokens, 4);
}

}  // namespace
}  // namespace automodel::training

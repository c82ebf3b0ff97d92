#include "distributed/context/context_split.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/errors.h"

namespace automodel::distributed {
namespace {

using tensor::Batch;
using tensor::PositionRun;
using Runs = std::vector<PositionRun>;

at::Tensor row(std::initializer_list<int64_t> values) {
  return at::tensor(std::vector<int64_t>(values), at::kLong).unsqueeze(0);
}

TEST(ContextSplitTest, ARankHoldsAChunkFromTheHeadAndOneFromTheTail) {
  EXPECT_EQ(local_runs(16, {0, 4}), (Runs{{0, 2}, {14, 2}}));
  EXPECT_EQ(local_runs(16, {1, 4}), (Runs{{2, 2}, {12, 2}}));
  EXPECT_EQ(local_runs(16, {3, 4}), (Runs{{6, 2}, {8, 2}}));
  EXPECT_EQ(local_runs(6, {0, 1}), (Runs{{0, 3}, {3, 3}}));
}

TEST(ContextSplitTest, AContiguousShareIsOneRun) {
  EXPECT_EQ(local_runs(12, {2, 4, SequenceLayout::kContiguous}), (Runs{{6, 3}}));
}

TEST(ContextSplitTest, LengthsThatDoNotDivideAreNamed) {
  EXPECT_EQ(test::error_of<UserError>([] {
              local_runs(6, {0, 2});
            }),
            "padded_seq_len must be divisible by 2 * cp_size, got padded_seq_len=6 cp_size=2");
  EXPECT_EQ(test::error_of<UserError>([] {
              local_runs(5, {0, 2, SequenceLayout::kContiguous});
            }),
            "padded_seq_len must be divisible by cp_size, got padded_seq_len=5 cp_size=2");
  EXPECT_EQ(padded_length(5, {0, 2}), 8);
  EXPECT_EQ(padded_length(8, {0, 2}), 8);
  EXPECT_EQ(padded_length(5, {0, 2, SequenceLayout::kContiguous}), 6);
}

/// Pairs of a query and a key that a rank's causal attention looks at.
int64_t num_causal_pairs(int64_t length, int rank, int size) {
  int64_t count = 0;
  for (const PositionRun& run : local_runs(length, {rank, size})) {
    for (int64_t i = 0; i < run.count; ++i) count += run.first + i + 1;
  }
  return count;
}

TEST(ContextSplitTest, CausalWorkIsTheSameOnEveryRank) {
  for (const int size : {2, 4, 8}) {
    for (int rank = 1; rank < size; ++rank) {
      EXPECT_EQ(num_causal_pairs(64, rank, size), num_causal_pairs(64, 0, size));
    }
  }
}

TEST(ContextSplitTest, JoiningUndoesSplitting) {
  const at::Tensor x = at::arange(2 * 24 * 3).view({2, 24, 3});
  for (const auto layout : {SequenceLayout::kHeadTail, SequenceLayout::kContiguous}) {
    for (const int size : {1, 2, 3, 4}) {
      std::vector<at::Tensor> shares;
      for (int rank = 0; rank < size; ++rank) {
        shares.push_back(split_tokens(x, 0, {rank, size, layout}));
      }
      EXPECT_TRUE(at::equal(join_tokens(at::stack(shares), layout), x));
    }
  }
}

TEST(ContextSplitTest, OneRankHasAllOfAnOddLength) {
  const at::Tensor x = row({1, 2, 3, 4, 5});
  EXPECT_TRUE(at::equal(split_tokens(x, 0, {}), x));
  EXPECT_EQ(padded_length(5, {}), 5);
}

TEST(ContextSplitTest, EveryFieldIsPaddedWithItsOwnFill) {
  Batch batch;
  batch.input_ids = row({11, 12, 13, 14, 15});
  batch.labels = row({12, 13, 14, 15, 16});
  batch.padding_mask = at::zeros({1, 5}, at::kBool);
  const Batch first = split_batch(batch, -7, {0, 2});
  EXPECT_TRUE(at::equal(first.input_ids, row({11, 12, 0, 0})));
  EXPECT_TRUE(at::equal(first.labels, row({12, 13, -7, -7})));
  EXPECT_TRUE(at::equal(first.position_ids, row({0, 1, 0, 0})));
  EXPECT_TRUE(at::equal(first.padding_mask.to(at::kLong), row({0, 0, 1, 1})));
  EXPECT_EQ(first.part->length, 5);
  EXPECT_EQ(first.part->num_positions, 5);
  EXPECT_EQ(first.part->runs, (Runs{{0, 2}, {6, 2}}));
  const Batch second = split_batch(batch, -7, {1, 2});
  EXPECT_TRUE(at::equal(second.labels, row({14, 15, 16, -7})));
  EXPECT_TRUE(at::equal(second.position_ids, row({2, 3, 4, 0})));
  EXPECT_EQ(second.part->num_positions, 5);
}

TEST(ContextSplitTest, ABatchThatNeedsNoPaddingHasNoMasks) {
  Batch batch;
  batch.input_ids = row({11, 12, 13, 14});
  batch.labels = row({12, 13, 14, 15});
  const Batch share = split_batch(batch, -100, {1, 2});
  EXPECT_FALSE(share.padding_mask.defined());
  EXPECT_FALSE(share.visible_keys.defined());
  EXPECT_TRUE(at::equal(share.labels, row({13, 14})));
}

TEST(ContextSplitTest, PositionsAndDocumentsTravelWithTheirTokens) {
  Batch batch;
  batch.input_ids = row({1, 2, 3, 4, 5, 6, 7});
  batch.labels = batch.input_ids;
  batch.position_ids = row({0, 1, 2, 0, 1, 2, 3});
  batch.document_ids = row({4, 4, 4, 9, 9, 9, 9});
  const Batch second = split_batch(batch, -100, {1, 2});
  EXPECT_TRUE(at::equal(second.position_ids, row({2, 0, 1, 2})));
  EXPECT_TRUE(at::equal(second.document_ids, row({4, 9, 9, 9})));
  EXPECT_EQ(second.part->num_positions, 4);
  const at::Tensor visible = at::tensor({0, 3, 3, 7, 3, 7, 3, 7}, at::kLong).view({1, 4, 2});
  EXPECT_TRUE(at::equal(second.visible_keys, visible));
}

TEST(ContextSplitTest, DocumentsThatBeginAgainAreRefused) {
  Batch batch;
  batch.input_ids = row({1, 2, 3, 4});
  batch.document_ids = row({1, 2, 1, 1});
  EXPECT_EQ(test::error_of<InputError>([&] {
              split_batch(batch, -100, {0, 2});
            }),
            "context parallelism needs every document of a sequence in one run, with padding at "
            "its ends only");
}

}  // namespace
}  // namespace automodel::distributed

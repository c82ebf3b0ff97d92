#include "tensor/shard_spec.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "tensor/shard_runs.h"

namespace automodel::tensor {
namespace {

/// Elements of a tensor [shape] numbered row by row that a spec selects, through its runs.
std::vector<int64_t> selected(const ShardSpec& spec) {
  std::vector<int64_t> elements(static_cast<size_t>(spec.numel()), -1);
  for (const ShardRun& run : shard_runs(spec)) {
    for (int64_t i = 0; i < run.numel; ++i) {
      elements[static_cast<size_t>(run.local + i)] = run.global + i;
    }
  }
  return elements;
}

/// The selected elements by ATen: narrow to the box, flatten, slice.
std::vector<int64_t> selected_by_slicing(const ShardSpec& spec) {
  at::Tensor tensor = at::arange(spec.global_numel()).view(spec.global_shape);
  for (size_t dim = 0; dim < spec.global_shape.size(); ++dim) {
    tensor = tensor.narrow(static_cast<int64_t>(dim), spec.box_offset[dim], spec.box_shape[dim]);
  }
  tensor = tensor.reshape({-1}).slice(0, spec.flat_begin, spec.flat_end).contiguous();
  return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
}

TEST(ShardSpecTest, ACursorHoldsOneOfHoweverManyRuns) {
  constexpr int64_t kRows = int64_t{1} << 40;
  const ShardSpec spec{{kRows, 2}, {0, 1}, {kRows, 1}, 0, kRows};
  ShardRunCursor cursor(spec);
  for (int64_t row = 0; row < 3; ++row, cursor.step()) {
    EXPECT_EQ(cursor.run().global, 2 * row + 1);
    EXPECT_EQ(cursor.run().local, row);
    EXPECT_EQ(cursor.run().numel, 1);
    EXPECT_FALSE(cursor.is_at_end());
  }
}

TEST(ShardSpecTest, AWholeTensorIsOneRun) {
  const ShardSpec spec = ShardSpec::whole({3, 4});
  ASSERT_EQ(shard_runs(spec).size(), 1u);
  EXPECT_EQ(shard_runs(spec)[0].numel, 12);
  EXPECT_TRUE(spec.is_whole());
}

TEST(ShardSpecTest, AFlatRangeOfAWholeTensorIsOneRun) {
  ShardSpec spec = ShardSpec::whole({3, 4});
  spec.flat_begin = 5;
  spec.flat_end = 11;
  ASSERT_EQ(shard_runs(spec).size(), 1u);
  EXPECT_EQ(shard_runs(spec)[0].global, 5);
}

TEST(ShardSpecTest, RunsSelectWhatSlicingSelects) {
  const std::vector<int64_t> shape = {4, 3, 5};
  for (int64_t o0 = 0; o0 < 4; ++o0) {
    for (int64_t o1 = 0; o1 < 3; ++o1) {
      for (int64_t n1 = 1; o1 + n1 <= 3; ++n1) {
        for (int64_t n2 = 1; n2 <= 5; n2 += 2) {
          ShardSpec spec{shape, {o0, o1, 5 - n2}, {4 - o0, n1, n2}, 0, 0};
          for (int64_t begin = 0; begin < spec.box_numel(); begin += 3) {
            spec.flat_begin = begin;
            spec.flat_end = std::min(spec.box_numel(), begin + 7);
            ASSERT_EQ(selected(spec), selected_by_slicing(spec));
          }
        }
      }
    }
  }
}

TEST(ShardSpecTest, AScalarIsOneElement) {
  const ShardSpec spec = ShardSpec::whole({});
  EXPECT_EQ(spec.numel(), 1);
  ASSERT_EQ(shard_runs(spec).size(), 1u);
}

TEST(ShardSpecTest, AnEmptyShardHasNoRuns) {
  ShardSpec spec = ShardSpec::whole({3});
  spec.flat_begin = spec.flat_end = 3;
  EXPECT_TRUE(shard_runs(spec).empty());
}

TEST(PlaceholderTest, HasShapeButNoMemory) {
  const at::Tensor tensor = placeholder({1 << 20, 1 << 20}, at::kFloat);
  EXPECT_TRUE(is_placeholder(tensor));
  EXPECT_EQ(tensor.size(0), 1 << 20);
  EXPECT_FALSE(is_placeholder(at::zeros({2})));
}

}  // namespace
}  // namespace automodel::tensor

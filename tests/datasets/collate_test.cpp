#include "datasets/loading/collate.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace automodel::datasets {
namespace {

std::vector<int64_t> flat(const at::Tensor& tensor) {
  const at::Tensor longs = tensor.to(at::kLong).contiguous();
  return {longs.const_data_ptr<int64_t>(), longs.const_data_ptr<int64_t>() + longs.numel()};
}

const std::vector<Sample> kSamples = {{{1, 2, 3}, {2, 3, -100}, 3, 9, 0}, {{4}, {5}, 1, 8, 1}};

TEST(CollateTest, PadsToTheLongestWithTheFirstSamplesPadId) {
  const tensor::Batch batch = default_collater(kSamples);
  EXPECT_EQ(flat(batch.input_ids), (std::vector<int64_t>{1, 2, 3, 4, 9, 9}));
  EXPECT_EQ(flat(batch.labels), (std::vector<int64_t>{2, 3, -100, 5, -100, -100}));
  EXPECT_EQ(flat(batch.padding_mask), (std::vector<int64_t>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(batch.padding_mask.scalar_type(), at::kBool);
  EXPECT_FALSE(batch.position_ids.defined());
}

TEST(CollateTest, PadsToAMultiple) {
  EXPECT_EQ(default_collater(kSamples, {4}).sequence_length(), 4);
  EXPECT_EQ(default_collater(kSamples, {3}).sequence_length(), 3);
}

TEST(CollateTest, MakesNoMaskWithoutPadding) {
  EXPECT_FALSE(default_collater(std::span(kSamples).first(1)).padding_mask.defined());
}

TEST(CollateTest, StacksOnlyEqualLengths) {
  EXPECT_EQ(flat(stack_collater(std::span(kSamples).first(1)).input_ids),
            (std::vector<int64_t>{1, 2, 3}));
  try {
    stack_collater(kSamples);
    FAIL() << "stacked";
  } catch (const InputError& error) {
    EXPECT_STREQ(
        error.what(),
        "default_collate stacks samples of equal length only: row 0 has 3 tokens, row 1 has 1; "
        "default_collater pads them");
  }
}

}  // namespace
}  // namespace automodel::datasets

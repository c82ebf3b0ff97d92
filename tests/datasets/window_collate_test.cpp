#include "datasets/loading/window_collate.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/errors.h"

// Whole batches are compared with upstream's collater by tests/recipes/diffusion_gemma_test.cpp and
// masked_diffusion_test.cpp.

namespace automodel::datasets {
namespace {

/// Tokens of which the first are a prompt's.
Sample sample_of(std::vector<int64_t> ids, size_t prompt) {
  Sample sample;
  sample.labels = ids;
  std::fill_n(sample.labels.begin(), prompt, kIgnoreIndex);
  sample.num_attended = static_cast<int64_t>(ids.size());
  sample.input_ids = std::move(ids);
  return sample;
}

at::Tensor matrix(std::vector<int64_t> values, int64_t rows) {
  return at::tensor(values, at::kLong).view({rows, -1});
}

constexpr int64_t kNone = kIgnoreIndex;

TEST(WindowCollater, FillsResponsesToWholeBlocksAndPadsTheRest) {
  const std::vector<Sample> samples = {sample_of({5, 6, 7, 8, 9}, 2), sample_of({5, 6}, 1)};
  const tensor::Batch batch = window_collater(samples, {.pad_id = 0, .eos_id = 1, .block_size = 4});
  EXPECT_TRUE(at::equal(batch.input_ids, matrix({5, 6, 7, 8, 9, 1, 5, 6, 1, 1, 1, 0}, 2)));
  EXPECT_TRUE(
      at::equal(batch.labels, matrix({kNone, kNone, 7, 8, 9, 1, kNone, 6, 1, 1, 1, kNone}, 2)));
  EXPECT_TRUE(at::equal(batch.padding_mask, matrix({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 2).ne(0)));
}

TEST(WindowCollater, LengthsAreMultiplesOfBlockAndDivisor) {
  const std::vector<Sample> samples = {sample_of({5, 6, 7}, 1)};
  const tensor::Batch batch = window_collater(
      samples, {.pad_id = 0, .eos_id = 1, .block_size = 4, .pad_seq_len_divisible = 6});
  EXPECT_EQ(batch.input_ids.size(1), 12);
}

TEST(WindowCollater, PaddingBeyondEveryLengthIsRefused) {
  const std::vector<Sample> samples = {sample_of({5, 6, 7}, 1)};
  const int64_t most = int64_t{1} << 30;
  EXPECT_EQ(test::error_of<UserError>([&] {
              window_collater(samples, {.block_size = most, .pad_seq_len_divisible = most - 1});
            }),
            "padding makes sequences of 1152921503533105152 tokens of a batch; at most 1073741824 "
            "are possible: take smaller multiples to pad to");
}

TEST(WindowCollater, PaddingCountsWhenItIsSupervised) {
  const std::vector<Sample> samples = {sample_of({5, 6}, 1)};
  const tensor::Batch batch = window_collater(
      samples, {.pad_id = 3, .eos_id = 1, .pad_seq_len_divisible = 4, .supervises_padding = true});
  EXPECT_TRUE(at::equal(batch.labels, matrix({kNone, 6, 3, 3}, 1)));
  EXPECT_TRUE(at::equal(batch.padding_mask, matrix({0, 0, 1, 1}, 1).ne(0)));
}

TEST(WindowCollater, LongSamplesAreCutAndNothingIsFilledBehindThem) {
  const std::vector<Sample> samples = {sample_of({5, 6, 7, 8, 9}, 1)};
  const tensor::Batch batch =
      window_collater(samples, {.pad_id = 0, .eos_id = 1, .block_size = 8, .max_length = 4});
  EXPECT_TRUE(at::equal(batch.input_ids, matrix({5, 6, 7, 8}, 1)));
  EXPECT_FALSE(batch.padding_mask.any().item<bool>());
}

TEST(WindowCollater, SeveralRunsOfLabelsAreRefused) {
  Sample sample = sample_of({5, 6, 7, 8}, 1);
  sample.labels[2] = kIgnoreIndex;
  sample.row = 7;
  EXPECT_EQ(
      test::error_of<InputError>([&] { window_collater(std::vector{sample}, {}); }),
      "row 7, counted from 0, has 2 runs of tokens that count in the loss; block diffusion "
      "denoises "
      "one response behind one prompt: mask_history: true of a ChatDataset keeps the last one");
}

TEST(WindowCollater, WithoutResponsesBlocksBeginWithTheSample) {
  // Two runs of labels, and blocks counted from the first token: 5 tokens fill up to 8, 2 to 4.
  Sample conversation = sample_of({5, 6, 7, 8, 9}, 1);
  conversation.labels[2] = kNone;
  const std::vector<Sample> samples = {conversation, sample_of({5, 6}, 1)};
  const tensor::Batch batch =
      window_collater(samples, {.pad_id = 0, .eos_id = 1, .block_size = 4, .has_responses = false});
  EXPECT_TRUE(
      at::equal(batch.input_ids, matrix({5, 6, 7, 8, 9, 1, 1, 1, 5, 6, 1, 1, 0, 0, 0, 0}, 2)));
  EXPECT_TRUE(at::equal(
      batch.labels,
      matrix({kNone, 6, kNone, 8, 9, 1, 1, 1, kNone, 6, 1, 1, kNone, kNone, kNone, kNone}, 2)));
  EXPECT_TRUE(at::equal(batch.padding_mask,
                        matrix({0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1}, 2).ne(0)));
}

}  // namespace
}  // namespace automodel::datasets

#include "datasets/pretraining/mock_unpacked.h"

#include <gtest/gtest.h>

namespace automodel::datasets {
namespace {

using Ids = std::vector<int64_t>;

/// By upstream's functions and Python 3.11.
TEST(MockUnpackedDatasetTest, MakesUpstreamsSentences) {
  const MockUnpackedDataset small({.num_sentences = 4,
                                   .mean_len = 6,
                                   .std_len = 3,
                                   .vocab_size = 50,
                                   .max_sentence_len = 8,
                                   .seed = 3});
  ASSERT_EQ(small.size(), 4);
  EXPECT_EQ(small.at(0).input_ids, (Ids{19, 30, 32, 5, 2, 42, 1}));
  EXPECT_EQ(small.at(1).input_ids, (Ids{14, 13, 49, 24, 42, 24, 32, 9, 1}));
  EXPECT_EQ(small.at(2).input_ids, (Ids{27, 37, 1}));
  EXPECT_EQ(small.at(3).input_ids, (Ids{34, 1}));
  const MockUnpackedDataset usual({});
  const Ids lengths = {26, 12, 25, 13, 21, 8, 22, 31, 17, 22};
  ASSERT_EQ(usual.size(), 10);
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(static_cast<int64_t>(usual.at(i).input_ids.size()), lengths[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(usual.at(9).input_ids, (Ids{36, 30, 37, 94, 64, 62, 72, 40, 42, 65, 2,
                                        20, 34, 25, 64, 39, 87, 57, 42, 41, 70, 1}));
}

/// As upstream: not the next token.
TEST(MockUnpackedDatasetTest, LabelsAreTheTokensThemselves) {
  const Sample sample = MockUnpackedDataset({.num_sentences = 1}).at(0);
  EXPECT_EQ(sample.labels, sample.input_ids);
  EXPECT_EQ(sample.num_attended, static_cast<int64_t>(sample.input_ids.size()));
}

}  // namespace
}  // namespace automodel::datasets

#include "datasets/loading/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "datasets/loading/collate.h"
#include "datasets/loading/loader.h"
#include "support/cpu_seconds.h"

namespace automodel::datasets {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Packs = std::vector<std::vector<int64_t>>;

/// Sample i has lengths[i] tokens, counted up from 1 over all samples, and 2 of padding; one of
/// length 0 has three tokens and no label.
struct CountedSamples final : Dataset {
  explicit CountedSamples(std::vector<int64_t> lengths) : lengths(std::move(lengths)) {}

  int64_t size() const override { return std::ssize(lengths); }
  Sample at(int64_t index) const override {
    const int64_t length = lengths[static_cast<size_t>(index)];
    int64_t first = 1;
    for (int64_t i = 0; i < index; ++i) first += lengths[static_cast<size_t>(i)];
    Sample sample{.pad_id = 7, .row = index};
    sample.input_ids.resize(static_cast<size_t>(length == 0 ? 3 : length));
    std::iota(sample.input_ids.begin(), sample.input_ids.end(), first);
    sample.labels.assign(sample.input_ids.size(), kIgnoreIndex);
    for (int64_t i = 0; i + 1 < length; ++i) sample.labels[static_cast<size_t>(i)] = first + i + 1;
    if (length == 1) sample.labels[0] = first;
    sample.num_attended = std::ssize(sample.input_ids);
    sample.input_ids.resize(sample.input_ids.size() + 2, 7);
    sample.labels.resize(sample.labels.size() + 2, kIgnoreIndex);
    return sample;
  }
  std::string origin(int64_t row) const override { return cat("data.jsonl:", row + 1); }
  std::vector<DataFingerprint> files() const override { return {}; }
  std::vector<int64_t> lengths;
};

/// What is said to it.
struct Listener final : Reporter {
  void info(std::string_view text) override { said += cat(text, "\n"); }
  void warning(std::string_view text) override { said += cat("warning: ", text, "\n"); }
  void error(std::string_view text) override { said += cat("error: ", text, "\n"); }
  std::string said;
};

PackedDataset packed(std::vector<int64_t> lengths, const PackingConfig& config,
                     Reporter* reporter = nullptr) {
  return {std::make_unique<CountedSamples>(std::move(lengths)), config, reporter};
}

TEST(PackedDatasetTest, ItTellsWhatBecameOfTheSamples) {
  const PackedDataset data = packed({3, 4, 0, 20, 6, 5}, {.pack_size = 10, .max_packs = 2});
  EXPECT_EQ(data.facts().dump(),
            R"({"num_samples": 6, "num_packs": 2, "pack_size": 10, "fill": 0.65, )"
            R"("num_packed": 3, "num_dropped": 3, "num_too_long": 1, "num_unlabelled": 1, )"
            R"("num_left_over": 1, "num_cut": 0, "num_tokens": 13})");
}

TEST(PackLengths, ThdClosesAPackWithTheFirstSampleThatDoesNotFit) {
  const std::vector<int64_t> lengths = {3, 4, 2, 6, 5, 1};
  EXPECT_EQ(pack_lengths(lengths, {.pack_size = 10}), (Packs{{0, 1, 2}, {3}, {4, 5}}));
  EXPECT_EQ(pack_lengths(lengths, {.pack_size = 10, .max_packs = 2}), (Packs{{0, 1, 2}, {3}}));
  EXPECT_EQ(pack_lengths(std::vector<int64_t>{10, 10}, {.pack_size = 10}), (Packs{{0}, {1}}));
}

TEST(PackLengths, NeatPutsTheLongestFirstIntoTheEmptiestPack) {
  const PackingConfig config{.pack_size = 10, .strategy = PackingStrategy::kNeat};
  // 6, then 5 (a new pack), 4 into the pack of 5, 3 into that of 6, 2 nowhere.
  EXPECT_EQ(pack_lengths(std::vector<int64_t>{3, 4, 2, 6, 5}, config),
            (Packs{{3, 0}, {4, 1}, {2}}));
  // Equal lengths keep their order, equal fills the lower number.
  EXPECT_EQ(pack_lengths(std::vector<int64_t>{6, 6, 2, 2}, config), (Packs{{0, 2}, {1, 3}}));
}

TEST(PackedDatasetTest, APackIsItsSamplesOneAfterAnother) {
  // The sizes of upstream's own test of packs.
  const PackedDataset dataset = packed({3, 4, 2}, {.pack_size = 10});
  ASSERT_EQ(dataset.size(), 1);
  const Sample pack = dataset.at(0);
  EXPECT_THAT(pack.input_ids, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 7));
  EXPECT_THAT(pack.labels, ElementsAre(2, 3, -100, 5, 6, 7, -100, 9, -100, -100));
  EXPECT_THAT(pack.document_lengths, ElementsAre(3, 4, 2));
  EXPECT_EQ(pack.num_attended, 9);
  EXPECT_EQ(pack.row, 0);
  EXPECT_EQ(dataset.origin(0), "the pack of data.jsonl:1 to data.jsonl:3");
}

std::vector<int64_t> flat(const at::Tensor& tensor) {
  const at::Tensor longs = tensor.to(at::kLong).contiguous();
  return {longs.const_data_ptr<int64_t>(), longs.const_data_ptr<int64_t>() + longs.numel()};
}

TEST(PackedDatasetTest, BatchesSayWhereDocumentsBeginAndEnd) {
  const PackedDataset dataset = packed({3, 4, 2, 9}, {.pack_size = 10});
  const tensor::Batch batch = default_collater(std::vector<Sample>{dataset.at(0), dataset.at(1)});
  EXPECT_THAT(flat(batch.position_ids[0]), ElementsAre(0, 1, 2, 0, 1, 2, 3, 0, 1, 0));
  EXPECT_THAT(flat(batch.document_ids[0]), ElementsAre(0, 0, 0, 1, 1, 1, 1, 2, 2, 3));
  EXPECT_THAT(flat(batch.padding_mask[0]), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 1));
  EXPECT_THAT(flat(batch.position_ids[1]), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 0));
  EXPECT_THAT(flat(batch.document_ids[1]), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 1));
}

TEST(PackedDatasetTest, SamplesArePaddedToAMultiple) {
  const PackedDataset dataset = packed({3, 5}, {.pack_size = 16, .pad_to_multiple_of = 4});
  const Sample pack = dataset.at(0);
  EXPECT_THAT(pack.document_lengths, ElementsAre(4, 8));
  EXPECT_THAT(pack.input_ids, ElementsAre(1, 2, 3, 7, 4, 5, 6, 7, 8, 7, 7, 7, 7, 7, 7, 7));
  EXPECT_EQ(pack.labels[3], kIgnoreIndex);
}

TEST(PackedDatasetTest, WhatIsLeftOutIsCountedAndSaid) {
  Listener listener;
  const PackedDataset dataset =
      packed({3, 11, 0, 4, 2, 12, 6}, {.pack_size = 10, .max_packs = 1}, &listener);
  const PackingCounts& counts = dataset.counts();
  EXPECT_EQ(counts.num_samples, 7);
  EXPECT_EQ(counts.num_packed, 3);
  EXPECT_EQ(counts.num_packs, 1);
  EXPECT_EQ(counts.num_tokens, 9);
  EXPECT_EQ(counts.num_too_long, 2);
  EXPECT_EQ(counts.num_unlabelled, 1);
  EXPECT_EQ(counts.num_left_over, 1);
  EXPECT_EQ(
      listener.said,
      "packing: 3 samples in 1 packs of 10 tokens, 90.0% of them used\n"
      "warning: packing leaves out 4 of 7 samples: 2 longer than a pack, 1 without a token that "
      "counts in the loss, 1 beyond max_packs\n");
}

TEST(PackedDatasetTest, NothingIsSaidLostWhenNothingIs) {
  Listener listener;
  packed({3, 4}, {.pack_size = 10}, &listener);
  EXPECT_EQ(listener.said, "packing: 2 samples in 1 packs of 10 tokens, 70.0% of them used\n");
}

TEST(PackedDatasetTest, ALongSampleIsNamedWhereItMustNotBeDropped) {
  try {
    packed({3, 11}, {.pack_size = 10, .drops_long_samples = false});
    FAIL() << "packed";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.jsonl:2: 11 tokens do not fit a pack of 10"));
  }
}

TEST(PackedDatasetTest, NoPackIsAnError) {
  try {
    packed({11, 0}, {.pack_size = 10});
    FAIL() << "packed";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("of 2 samples 1 are longer than a pack of 10"));
  }
}

TEST(PackedDatasetTest, ThreadsChangeNothingAndThrowTheFirstFailure) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 700; ++i) lengths.push_back(1 + i * i % 23);
  const PackedDataset one = packed(lengths, {.pack_size = 40});
  const PackedDataset four = packed(lengths, {.pack_size = 40, .num_threads = 4});
  ASSERT_EQ(one.size(), four.size());
  for (int64_t i = 0; i < one.size(); ++i) EXPECT_EQ(one.at(i).input_ids, four.at(i).input_ids);

  struct Failing final : Dataset {
    int64_t size() const override { return 1000; }
    Sample at(int64_t index) const override {
      if (index >= 300) throw InputError(cat("row ", index));
      return {.input_ids = {1}, .labels = {1}, .num_attended = 1, .row = index};
    }
    std::string origin(int64_t) const override { return ""; }
    std::vector<DataFingerprint> files() const override { return {}; }
  };
  try {
    PackedDataset(std::make_unique<Failing>(), {.pack_size = 8, .num_threads = 4}, nullptr);
    FAIL() << "packed";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "row 300");
  }
}

TEST(PackedDatasetTest, ALoaderShufflesPacksAndKnowsItsPlace) {
  const auto loader = [] {
    return DataLoader(std::make_unique<PackedDataset>(
                          std::make_unique<CountedSamples>(std::vector<int64_t>(40, 3)),
                          PackingConfig{.pack_size = 7}, nullptr),
                      {}, {.local_batch_size = 2});
  };
  DataLoader whole = loader();
  EXPECT_EQ(whole.size(), 10);
  std::vector<at::Tensor> batches;
  Json place;
  while (const auto batch = whole.next()) {
    batches.push_back(batch->input_ids);
    if (batches.size() == 4) place = whole.state();
  }
  ASSERT_EQ(batches.size(), 10U);
  DataLoader rest = loader();
  rest.load_state(place);
  for (size_t i = 4; i < 10; ++i) EXPECT_TRUE(rest.next()->input_ids.equal(batches[i]));
}

TEST(PackLengths, AMillionSamplesArePackedInSeconds) {
  std::mt19937 random(1);
  std::vector<int64_t> lengths(1'000'000);
  for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random() % 2048);
  for (const PackingStrategy strategy : {PackingStrategy::kThd, PackingStrategy::kNeat}) {
    const double begin = test::thread_cpu_seconds();
    const auto packs = pack_lengths(lengths, {.pack_size = 4096, .strategy = strategy});
    const double seconds = test::thread_cpu_seconds() - begin;
    RecordProperty(strategy == PackingStrategy::kThd ? "thd_seconds" : "neat_seconds",
                   std::to_string(seconds));
    std::cout << (strategy == PackingStrategy::kThd ? "thd: " : "neat: ") << packs.size()
              << " packs in " << seconds << " s\n";
    EXPECT_LT(seconds, 10);
  }
}

}  // namespace
}  // namespace automodel::datasets

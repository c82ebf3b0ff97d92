#include "datasets/samples/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace automodel::datasets {
namespace {

using testing::ElementsAre;
using Indices = std::vector<int64_t>;

/// Samples of one token, which is `first` and counts up.
struct Numbers final : Dataset {
  Numbers(std::string name, int64_t first, int64_t num_samples)
      : name(std::move(name)), first(first), num_samples(num_samples) {}

  int64_t size() const override { return num_samples; }
  Sample at(int64_t index) const override {
    // The second row has no label: the third takes its place.
    const int64_t row = index == 1 && num_samples > 2 ? 2 : index;
    return {.input_ids = {first + row}, .labels = {first + row}, .num_attended = 1, .row = row};
  }
  std::string origin(int64_t row) const override { return cat(name, ":", row + 1); }
  std::vector<DataFingerprint> files() const override {
    DataFingerprint file;
    file.path = name;
    return {file};
  }
  std::string name;
  int64_t first;
  int64_t num_samples;
};

MixedDataset mixture(const std::optional<Interleaving>& interleaving = std::nullopt) {
  std::vector<MixedDataset::Part> parts;
  parts.push_back({"first", std::make_unique<Numbers>("a.jsonl", 100, 3)});
  parts.push_back({"second", std::make_unique<Numbers>("b.jsonl", 200, 2)});
  return MixedDataset(std::move(parts), interleaving);
}

Indices tokens(const Dataset& dataset) {
  Indices all;
  for (int64_t i = 0; i < dataset.size(); ++i) all.push_back(dataset.at(i).input_ids[0]);
  return all;
}

std::vector<std::string> origins(const Dataset& dataset) {
  std::vector<std::string> all;
  for (int64_t i = 0; i < dataset.size(); ++i) all.push_back(dataset.origin(dataset.at(i).row));
  return all;
}

// The orders below are those of datasets 5.2's interleave_datasets.

TEST(MixtureTest, DatasetsTakeTurnsAsInterleaveDatasetsHasThem) {
  const Indices sizes = {3, 4, 5};
  using enum StoppingStrategy;
  EXPECT_THAT(interleaved_order(sizes, {.stopping = kFirstExhausted}),
              ElementsAre(0, 3, 7, 1, 4, 8, 2, 5, 9));
  EXPECT_THAT(interleaved_order(sizes, {.stopping = kAllExhausted}),
              ElementsAre(0, 3, 7, 1, 4, 8, 2, 5, 9, 0, 6, 10, 1, 3, 11));
  EXPECT_THAT(interleaved_order(sizes, {.stopping = kAllExhaustedWithoutReplacement}),
              ElementsAre(0, 3, 7, 1, 4, 8, 2, 5, 9, 6, 10, 11));
}

TEST(MixtureTest, DatasetsAreDrawnAsInterleaveDatasetsDrawsThem) {
  const auto order = [](StoppingStrategy stopping) {
    return interleaved_order({4, 3, 6},
                             {.probabilities = {0.2, 0.5, 0.3}, .seed = 42, .stopping = stopping});
  };
  EXPECT_THAT(order(StoppingStrategy::kFirstExhausted),
              ElementsAre(7, 4, 8, 5, 0, 9, 10, 11, 1, 6));
  EXPECT_THAT(order(StoppingStrategy::kAllExhausted),
              ElementsAre(7, 4, 8, 5, 0, 9, 10, 11, 1, 6, 4, 12, 5, 7, 6, 4, 5, 2, 8, 6, 9, 4, 10,
                          11, 12, 3));
  EXPECT_THAT(order(StoppingStrategy::kAllExhaustedWithoutReplacement),
              ElementsAre(7, 4, 8, 5, 0, 9, 10, 11, 1, 6, 12, 2, 3));
}

TEST(MixtureTest, LongOrdersAreThoseOfInterleaveDatasets) {
  const Indices order =
      interleaved_order({3000, 500}, {.probabilities = {0.8, 0.2},
                                      .seed = 123456789012,
                                      .stopping = StoppingStrategy::kAllExhausted});
  ASSERT_EQ(order.size(), 3787);
  EXPECT_EQ(Indices(order.begin() + 1000, order.begin() + 1010),
            (Indices{792, 793, 794, 795, 796, 797, 798, 799, 3208, 800}));
  int64_t checksum = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    checksum = (checksum + static_cast<int64_t>(i + 1) * order[i]) % 1000000007;
  }
  EXPECT_EQ(checksum, 166152843);
}

TEST(MixtureTest, OrdersThatNobodyCouldKeepAreRefused) {
  EXPECT_THROW(interleaved_order({4, 3}, {.probabilities = {1 - 1e-10, 1e-10},
                                          .stopping = StoppingStrategy::kAllExhausted}),
               InputError);
  EXPECT_THROW(
      interleaved_order({int64_t{1} << 40, 3}, {.stopping = StoppingStrategy::kAllExhausted}),
      InputError);
  EXPECT_EQ(interleaved_order({4, 3}, {.probabilities = {1 - 1e-10, 1e-10}}).size(), 4);
}

TEST(MixtureTest, DatasetsFollowEachOther) {
  const MixedDataset mixed = mixture();
  EXPECT_EQ(tokens(mixed), (Indices{100, 102, 102, 200, 201}));
  EXPECT_THAT(origins(mixed),
              ElementsAre("a.jsonl:1", "a.jsonl:3", "a.jsonl:3", "b.jsonl:1", "b.jsonl:2"));
  EXPECT_EQ(mixed.at(3).row, 3);
  EXPECT_NE(mixed.at(1).row, 1) << "another row took its place";
  ASSERT_EQ(mixed.files().size(), 2);
  EXPECT_EQ(mixed.files()[1].path, "b.jsonl");
  Indices shown;
  for (int64_t i = 0; i < mixed.size(); ++i) shown.push_back(mixed.index_to_show(i));
  EXPECT_EQ(shown, (Indices{0, 3, 1, 4, 2}));
}

TEST(MixtureTest, InterleavedSamplesKnowTheirRows) {
  const MixedDataset mixed = mixture(Interleaving{.stopping = StoppingStrategy::kAllExhausted});
  EXPECT_EQ(tokens(mixed), (Indices{100, 200, 102, 201, 102, 200}));
  EXPECT_THAT(origins(mixed), ElementsAre("a.jsonl:1", "b.jsonl:1", "a.jsonl:3", "b.jsonl:2",
                                          "a.jsonl:3", "b.jsonl:1"));
  EXPECT_EQ(
      mixed.facts().dump(),
      R"({"num_samples": 6, "datasets": [{"name": "first", "num_samples": 3, "num_rows": 3}, )"
      R"({"name": "second", "num_samples": 3, "num_rows": 2}]})");
}

/// A row that took another's place is found however deep its dataset lies.
TEST(MixtureTest, MixturesOfMixturesKnowTheirRows) {
  std::vector<MixedDataset::Part> parts;
  parts.push_back({"first", std::make_unique<Numbers>("c.jsonl", 300, 2)});
  parts.push_back({"second", std::make_unique<MixedDataset>(mixture())});
  parts.push_back({"third", std::make_unique<MixedDataset>(mixture())});
  const MixedDataset mixed(std::move(parts));
  EXPECT_THAT(origins(mixed), ElementsAre("c.jsonl:1", "c.jsonl:2", "a.jsonl:1", "a.jsonl:3",
                                          "a.jsonl:3", "b.jsonl:1", "b.jsonl:2", "a.jsonl:1",
                                          "a.jsonl:3", "a.jsonl:3", "b.jsonl:1", "b.jsonl:2"));
  for (int64_t i = 0; i < mixed.size(); ++i) EXPECT_LT(mixed.at(i).row, mixed.row_end());
  Indices shown;
  for (int64_t i = 0; i < mixed.size(); ++i) shown.push_back(mixed.index_to_show(i));
  EXPECT_EQ(shown, (Indices{0, 2, 7, 1, 5, 10, 3, 8, 6, 11, 4, 9}));
}

TEST(MixtureTest, OrdersAreToldApart) {
  const auto checksum = [](const std::optional<Interleaving>& interleaving) {
    return mixture(interleaving).order_checksum();
  };
  const Interleaving drawn{
      .probabilities = {0.5, 0.5}, .seed = 1, .stopping = StoppingStrategy::kAllExhausted};
  Interleaving other = drawn;
  other.seed = 7;
  EXPECT_EQ(checksum(drawn), checksum(drawn));
  EXPECT_NE(checksum(drawn), checksum(other));
  EXPECT_NE(checksum(drawn), checksum(std::nullopt));
  EXPECT_NE(checksum(Interleaving{}), checksum(std::nullopt));
}

TEST(MixtureTest, AChanceOfZeroLeavesADatasetOut) {
  EXPECT_THAT(interleaved_order({2, 3, 2}, {.probabilities = {0, 1, 0}, .seed = 5}),
              ElementsAre(2, 3, 4));
}

}  // namespace
}  // namespace automodel::datasets

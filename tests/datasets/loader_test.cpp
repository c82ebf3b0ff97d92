#include "datasets/loading/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "core/error.h"
#include "support/errors.h"

namespace automodel::datasets {
namespace {

/// Row i is the token i, i % 5 + 1 times.
struct CountingDataset final : Dataset {
  explicit CountingDataset(int64_t num_rows, int64_t bad_row = -1)
      : num_rows(num_rows), bad_row(bad_row) {}
  int64_t size() const override { return num_rows; }
  Sample at(int64_t index) const override {
    if (index == bad_row) throw InputError("data.jsonl:7: no good");
    const auto length = static_cast<size_t>(index % 5 + 1);
    return {std::vector<int64_t>(length, index), std::vector<int64_t>(length, index),
            static_cast<int64_t>(length), 0, index};
  }
  std::string origin(int64_t row) const override { return cat("data.jsonl:", row + 1); }
  std::vector<DataFingerprint> files() const override { return files_read; }
  int64_t num_rows;
  int64_t bad_row;
  std::vector<DataFingerprint> files_read;
};

DataLoader make_loader(int64_t num_rows, LoaderContext context = {}, DataloaderConfig config = {}) {
  return {std::make_unique<CountingDataset>(num_rows), config, context};
}

std::vector<int64_t> rows_of(const tensor::Batch& batch) {
  std::vector<int64_t> rows;
  for (int64_t b = 0; b < batch.num_sequences(); ++b)
    rows.push_back(batch.input_ids[b][0].item<int64_t>());
  return rows;
}

std::vector<std::vector<int64_t>> rest_of(DataLoader& loader) {
  std::vector<std::vector<int64_t>> batches;
  while (const auto batch = loader.next()) batches.push_back(rows_of(*batch));
  return batches;
}

TEST(LoaderTest, HandsOutTheSamplersOrderWhateverTheThreads) {
  const std::vector<int64_t> order = DistributedSampler({.num_rows = 23}).rows(0);
  for (const int64_t num_workers : {0, 1, 4}) {
    DataLoader loader = make_loader(23, {.local_batch_size = 4}, {.num_workers = num_workers});
    EXPECT_EQ(loader.size(), 6);
    const auto batches = rest_of(loader);
    std::vector<int64_t> rows;
    for (const auto& batch : batches) rows.insert(rows.end(), batch.begin(), batch.end());
    EXPECT_EQ(rows, order);
    EXPECT_EQ(batches.size(), 6u);
    EXPECT_EQ(batches.back().size(), 3u);
    EXPECT_EQ(loader.next(), std::nullopt);
  }
}

TEST(LoaderTest, LeavesOutAPartialBatchWhenAsked) {
  DataLoader loader = make_loader(23, {.local_batch_size = 4}, {.drop_last = true});
  EXPECT_EQ(loader.size(), 5);
  EXPECT_EQ(rest_of(loader).size(), 5u);
}

TEST(LoaderTest, ReadsInOrderWithoutShuffle) {
  DataLoader loader = make_loader(5, {}, {.batch_size = 2, .shuffle = false});
  EXPECT_THAT(rest_of(loader),
              testing::ElementsAre(testing::ElementsAre(0, 1), testing::ElementsAre(2, 3),
                                   testing::ElementsAre(4)));
}

TEST(LoaderTest, RowsThatNoRankGetsAreToldWhereTheyAreAlwaysTheSame) {
  test::Warnings warnings;
  LoaderContext context{.num_replicas = 4, .reporter = &warnings, .dataset = "validation_dataset"};
  make_loader(8, context, {.shuffle = false});
  make_loader(7, context, {.shuffle = true});
  EXPECT_THAT(warnings.texts, testing::IsEmpty());
  make_loader(7, context, {.shuffle = false});
  make_loader(5, context, {.shuffle = false});
  EXPECT_THAT(warnings.texts,
              testing::ElementsAre(
                  "validation_dataset: the last 3 samples of 7 are left out, so that each of the 4 "
                  "data-parallel ranks gets as many",
                  "validation_dataset: the last sample of 5 is left out, so that each of the 4 "
                  "data-parallel ranks gets as many"));
  context.has_one_order = true;
  make_loader(7, context, {.shuffle = true});
  EXPECT_EQ(warnings.texts.back(),
            "validation_dataset: 3 samples of 7 are left out, so that each of the 4 data-parallel "
            "ranks gets as many");
  EXPECT_EQ(test::error_of<InputError>([&] { make_loader(3, context, {.shuffle = false}); }),
            "validation_dataset has 3 samples, fewer than the 4 data-parallel ranks");
}

TEST(LoaderTest, APositionInOtherDataIsRefused) {
  const auto loader = [](uint64_t checksum) {
    auto dataset = std::make_unique<CountingDataset>(8);
    dataset->files_read = {{"data.jsonl", {7, 0}, checksum}};
    return DataLoader(std::move(dataset), {}, {});
  };
  DataLoader first = loader(17);
  first.next();
  DataLoader same = loader(17);
  same.load_state(first.state());
  DataLoader other = loader(18);
  try {
    other.load_state(first.state());
    FAIL() << "it was taken";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("data.jsonl is not the data file that the "
                                                  "checkpoint was made with"));
  }
}

TEST(LoaderTest, ChangedDataIsTakenWhereItIsAllowed) {
  test::Warnings warnings;
  const auto loader = [&](int64_t num_rows, uint64_t checksum, bool groups_by_length = false) {
    auto dataset = std::make_unique<CountingDataset>(num_rows);
    dataset->files_read = {{"data.jsonl", {7, 0}, checksum}, {"more.jsonl", {7, 0}, checksum}};
    LoaderContext context{.local_batch_size = 2};
    context.allows_changed_data = true;
    context.reporter = &warnings;
    return DataLoader(std::move(dataset), {.group_by_length = groups_by_length}, context);
  };
  DataLoader first = loader(8, 17);
  first.set_epoch(3);
  first.next();
  const Json state = first.state();
  const auto rest = rest_of(first);
  DataLoader mended = loader(8, 18);  // as many rows: they go on where they were
  mended.load_state(state);
  EXPECT_FALSE(mended.has_begun_anew());
  EXPECT_EQ(rest_of(mended), rest);
  ASSERT_EQ(warnings.texts.size(), 2u);  // one for each file
  EXPECT_THAT(warnings.texts[1], testing::EndsWith("; it is allowed to change"));
  DataLoader fresh = loader(9, 19);
  fresh.set_epoch(3);
  DataLoader longer = loader(9, 19);
  longer.load_state(state);
  EXPECT_TRUE(longer.has_begun_anew());
  EXPECT_EQ(warnings.texts.back(),
            "the dataset: there are 9 samples, and there were 8: epoch 3 begins anew with "
            "what is there now");
  EXPECT_EQ(rest_of(longer), rest_of(fresh));
  longer.load_state(first.state());  // at the end of an epoch
  EXPECT_EQ(longer.next(), std::nullopt);
  EXPECT_THAT(warnings.texts.back(), testing::EndsWith(": the next epoch takes what is there now"));
  DataLoader grouped = loader(8, 17, true);
  grouped.next();
  DataLoader other_lengths = loader(8, 18, true);
  other_lengths.load_state(grouped.state());
  EXPECT_TRUE(other_lengths.has_begun_anew());
  EXPECT_THAT(warnings.texts.back(),
              testing::HasSubstr("the order of the samples depends on their lengths: epoch 0"));
}

TEST(LoaderTest, OtherRowsOfTheSameFilesBeginTheEpochAnewIfTheyMay) {
  LoaderContext context;
  DataLoader first = make_loader(8, context);
  DataLoader other = make_loader(9, context);
  EXPECT_THAT(test::error_of<InputError>([&] { other.load_state(first.state()); }),
              testing::HasSubstr("one in a dataset of 8 samples; this dataset has 9"));
  context.allows_changed_data = true;
  DataLoader anew = make_loader(9, context);
  anew.load_state(first.state());
  EXPECT_TRUE(anew.has_begun_anew());
}

/// In an order of another seed, or in none, an epoch would have some rows twice.
TEST(LoaderTest, APositionInAnotherOrderIsRefused) {
  DataLoader first = make_loader(8);
  first.next();
  const Json state = first.state();
  const auto refused = [&](const LoaderContext& context, const DataloaderConfig& config) {
    DataLoader other = make_loader(8, context, config);
    EXPECT_THAT(
        test::error_of<InputError>([&] { other.load_state(state); }),
        testing::HasSubstr("in another order of them, so that an epoch would have some rows "
                           "twice and others never"));
  };
  refused({.seed = 7}, {});
  refused({}, {.shuffle = false});
  refused({}, {.group_by_length = true});
  refused({}, {.dataloader_type = MegatronOrder::kSingle});
  DataLoader ended = make_loader(8);
  rest_of(ended);
  EXPECT_NO_THROW(make_loader(8, {.seed = 7}).load_state(ended.state()));
  DataLoader in_order = make_loader(8, {.seed = 7}, {.shuffle = false});
  EXPECT_NO_THROW(in_order.load_state(make_loader(8, {}, {.shuffle = false}).state()));
}

TEST(LoaderTest, ContinuesExactlyFromEveryPosition) {
  const LoaderContext context{.local_batch_size = 3};
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    for (int64_t taken = 0; taken <= 5; ++taken) {
      DataLoader whole = make_loader(13, context);
      whole.set_epoch(epoch);
      for (int64_t i = 0; i < taken; ++i) whole.next();
      DataLoader continued = make_loader(13, context);
      continued.load_state(Json::parse(whole.state().dump(), "state"));
      continued.set_epoch(epoch);
      EXPECT_EQ(rest_of(continued), rest_of(whole)) << taken << " batches into epoch " << epoch;
      whole.set_epoch(epoch + 1);
      continued.set_epoch(epoch + 1);
      EXPECT_EQ(rest_of(continued), rest_of(whole));
    }
  }
}

TEST(LoaderTest, CountsOnlyWhatWasHandedOut) {
  DataLoader loader =
      make_loader(40, {.local_batch_size = 2}, {.num_workers = 4, .prefetch_factor = 3});
  loader.next();
  Json state = loader.state();
  state.erase("drawn");
  EXPECT_EQ(state.dump(), R"({"epoch": 0, "consumed": 2, "is_exhausted": false, "num_rows": 40})");
}

TEST(LoaderTest, ContinuesOnAnotherNumberOfRanks) {
  // Two ranks take 2 batches of 2, then four ranks take the rest in batches of 1.
  std::multiset<int64_t> seen;
  Json state;
  for (int rank = 0; rank < 2; ++rank) {
    DataLoader loader = make_loader(16, {.num_replicas = 2, .rank = rank, .local_batch_size = 2});
    for (int i = 0; i < 2; ++i) {
      for (const int64_t row : rows_of(*loader.next())) seen.insert(row);
    }
    state = loader.state();
  }
  std::vector<int64_t> first_of_ranks;
  for (int rank = 0; rank < 4; ++rank) {
    DataLoader loader = make_loader(16, {.num_replicas = 4, .rank = rank, .local_batch_size = 1});
    loader.load_state(state);
    const auto rest = rest_of(loader);
    EXPECT_EQ(rest.size(), 2u);
    first_of_ranks.push_back(rest[0][0]);
    for (const auto& batch : rest) seen.insert(batch.begin(), batch.end());
  }
  EXPECT_EQ(seen.size(), 16u);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 16u);
  const std::vector<int64_t> order = DistributedSampler({.num_rows = 16}).rows(0);
  EXPECT_EQ(first_of_ranks, std::vector(order.begin() + 8, order.begin() + 12));
}

TEST(LoaderTest, RefusesAPositionThatDoesNotFit) {
  const auto error = [](Json state, const LoaderContext& context) -> std::string {
    DataLoader loader = make_loader(10, context);
    try {
      loader.load_state(state);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  const auto state = [](int64_t consumed, int64_t num_rows) {
    return Json::parse(cat("{\"epoch\": 1, \"consumed\": ", consumed,
                           ", \"is_exhausted\": false, \"num_rows\": ", num_rows, "}"),
                       "state");
  };
  EXPECT_EQ(error(state(3, 10), {.num_replicas = 2}),
            "the saved data position, 3 samples into epoch 1, cannot be split evenly over 2 "
            "data-parallel "
            "ranks; continue on a number of ranks that divides it");
  EXPECT_EQ(error(state(3, 9), {}),
            "the saved data position is one in a dataset of 9 samples; this dataset has 10: a run "
            "continues with the seed, shuffle, group_by_length, split, shuffle_seed, limits, "
            "filters, seq_length, packing, num_train_samples and, of a mixture, datasets, "
            "probabilities, seed and stopping_strategy that it began with; "
            "checkpoint.allow_changed_data: true begins the epoch anew");
  EXPECT_EQ(error(state(11, 10), {}), "the saved data position is damaged: sample 11 of 10");
}

TEST(LoaderTest, ShufflesEachEpochAnewAndRewinds) {
  DataLoader loader = make_loader(30, {.local_batch_size = 30});
  const auto first = rest_of(loader);
  loader.set_epoch(0);
  EXPECT_TRUE(rest_of(loader).empty());
  loader.rewind();
  EXPECT_EQ(rest_of(loader), first);
  loader.set_epoch(1);
  EXPECT_NE(rest_of(loader), first);
}

TEST(LoaderTest, ThrowsWhatAWorkerThrewWhenItsBatchIsDue) {
  DataLoader loader(std::make_unique<CountingDataset>(10, 5), {.shuffle = false, .num_workers = 2},
                    {.local_batch_size = 2});
  EXPECT_EQ(rows_of(*loader.next()).size(), 2u);
  EXPECT_EQ(rows_of(*loader.next()).size(), 2u);
  for (int i = 0; i < 2; ++i) {
    try {
      loader.next();
      FAIL() << "no error";
    } catch (const InputError& error) {
      EXPECT_STREQ(error.what(), "data.jsonl:7: no good");
    }
  }
  EXPECT_EQ(loader.state().at("consumed").as_int(), 4);
}

TEST(LoaderTest, RefusesTokensOutsideTheVocabulary) {
  DataLoader loader = make_loader(10, {.vocab_size = 4}, {.shuffle = false});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(loader.next());
  try {
    loader.next();
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_STREQ(
        error.what(),
        "data.jsonl:5: token id 4 is outside the model's vocabulary (vocab_size 4); the tokenizer "
        "belongs to another model, or was given tokens that the model has no rows for");
  }
}

TEST(LoaderTest, RefusesAnEmptyDataset) {
  EXPECT_THROW(make_loader(0), InputError);
}

TEST(LoaderTest, GroupsSamplesOfOneLengthAndContinuesInTheMiddleOfAnEpoch) {
  const LoaderContext one{.local_batch_size = 4};
  const DataloaderConfig grouped{.num_workers = 3, .group_by_length = true};
  DataLoader loader = make_loader(40, one, grouped);  // eight rows of each of five lengths
  std::vector<std::vector<int64_t>> batches;
  std::set<int64_t> lengths;
  while (const auto batch = loader.next()) {
    batches.push_back(rows_of(*batch));
    for (const int64_t row : batches.back()) EXPECT_EQ(row % 5, batches.back()[0] % 5);
    lengths.insert(batches.back()[0] % 5);
  }
  EXPECT_EQ(batches.size(), 10U);
  EXPECT_EQ(lengths.size(), 5U);

  DataLoader first = make_loader(40, one, grouped);
  for (int i = 0; i < 3; ++i) first.next();
  DataLoader second = make_loader(40, one, grouped);
  second.load_state(first.state());
  EXPECT_EQ(rest_of(second), std::vector(batches.begin() + 3, batches.end()));
  second.set_epoch(1);
  EXPECT_NE(rest_of(second), batches);

  // Every rank has the same lengths at the same time, and positions of other ranks are refused.
  DataLoader left = make_loader(40, {.num_replicas = 2, .rank = 0, .local_batch_size = 4}, grouped);
  DataLoader right =
      make_loader(40, {.num_replicas = 2, .rank = 1, .local_batch_size = 4}, grouped);
  while (const auto batch = left.next()) {
    EXPECT_EQ(rows_of(*batch)[0] % 5, rows_of(*right.next())[0] % 5);
  }
  try {
    left.load_state(first.state());
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_STREQ(
        error.what(),
        "the saved data position is of rows dealt as {\"ranks\": 1, \"batch_size\": 4}, "
        "these are dealt as {\"ranks\": 2, \"batch_size\": 4}: with group_by_length or "
        "dataloader_type cyclic a run continues on as many ranks, with the same batch_size");
  }
  EXPECT_THROW(make_loader(40, one).load_state(first.state()), InputError);
}

/// The ids of this process's threads that are not in `known`. A thread that was joined is listed
/// until the kernel has cleared it away, so a mere count would also see what earlier tests left
/// behind.
std::set<std::string> threads_besides(const std::set<std::string>& known) {
  std::set<std::string> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string id = entry.path().filename().string();
    if (!known.contains(id)) threads.insert(std::move(id));
  }
  return threads;
}

TEST(LoaderTest, EndsItsThreadsWhileBatchesAreBeingPrepared) {
  const std::set<std::string> before = threads_besides({});
  for (int i = 0; i < 50; ++i) {
    {
      DataLoader loader = make_loader(1000, {}, {.num_workers = 3});
      EXPECT_TRUE(loader.next());
      EXPECT_EQ(threads_besides(before).size(), 3);
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!threads_besides(before).empty() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    ASSERT_TRUE(threads_besides(before).empty());
  }
}

}  // namespace
}  // namespace automodel::datasets

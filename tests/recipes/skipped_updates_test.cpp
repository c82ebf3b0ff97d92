#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "recipes/saving_runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;

/// Forty steps of four rows each, five an epoch on one rank and on two, in a changing order, whose
/// norms go up and down.
const std::vector<std::string> kForty = {"--optimizer.lr=3e-3",
                                         "--dataset.split=train[:20]",
                                         "--step_scheduler.max_steps=40",
                                         "--step_scheduler.num_epochs=20",
                                         "--step_scheduler.ckpt_every_steps=26",
                                         "--step_scheduler.save_checkpoint_every_epoch=false",
                                         "--checkpoint.save_consolidated=false"};
/// The norms of a tiny model differ by less than ten times.
const std::vector<std::string> kSkipping = {"--clip_grad_norm.on_spike=skip",
                                            "--clip_grad_norm.spike_multiple=1.01"};

ProgramResult run(const std::string& folder, std::vector<std::string> more, int num_ranks = 1) {
  more.insert(more.end(), kForty.begin(), kForty.end());
  const ProgramResult result =
      test::run_program(test::on({num_ranks, {}}, test::smoke_run(folder, more)));
  EXPECT_EQ(result.status, 0) << result.err;
  return result;
}

std::vector<Json> records_of(const std::string& folder) {
  return read_records(path_join(folder, "training.jsonl"));
}

std::set<int64_t> skipped_steps(const std::string& folder) {
  std::set<int64_t> steps;
  for (const Json& event : read_records(path_join(folder, "events.jsonl"))) {
    if (event.at("event").as_string() == "skipped_update") steps.insert(event.at("step").as_int());
  }
  return steps;
}

void expect_same(const Json& a, const Json& b) {
  for (const char* key : {"step", "loss", "grad_norm", "lr"}) {
    EXPECT_EQ(a.at(key).dump(), b.at(key).dump()) << key << " of step " << a.at("step").dump();
  }
}

TEST(SkippedUpdatesTest, AStepAboveTheUsualNormsUpdatesNothing) {
  const TemporaryDirectory folder;
  const std::string plain = folder.file("plain"), skipping = folder.file("skipping");
  run(plain, {});
  const ProgramResult result = run(skipping, kSkipping);
  const std::set<int64_t> skipped = skipped_steps(skipping);
  ASSERT_FALSE(skipped.empty());
  EXPECT_TRUE(skipped_steps(plain).empty());
  const int64_t first = *skipped.begin();
  ASSERT_GE(first, 20);
  ASSERT_LT(first, 39);
  EXPECT_THAT(result.err, testing::HasSubstr(cat("step ", first,
                                                 ": its update is left out, since "
                                                 "the gradient norm ")));
  const std::vector<Json> wanted = records_of(plain), found = records_of(skipping);
  ASSERT_EQ(found.size(), wanted.size());
  // What is left out shows in the step after it.
  for (int64_t step = 0; step <= first; ++step) {
    expect_same(found[static_cast<size_t>(step)], wanted[static_cast<size_t>(step)]);
  }
  EXPECT_NE(found[static_cast<size_t>(first + 1)].at("loss").dump(),
            wanted[static_cast<size_t>(first + 1)].at("loss").dump());
}

TEST(SkippedUpdatesTest, RanksLeaveOutTheSameAndAContinuedRunToo) {
  const TemporaryDirectory folder;
  const std::string one = folder.file("one"), two = folder.file("two");
  run(one, kSkipping);
  const std::set<int64_t> skipped = skipped_steps(one);
  ASSERT_GE(skipped.size(), 4U);
  run(two, kSkipping, 2);
  EXPECT_EQ(skipped_steps(two), skipped);
  test::expect_equal_records(records_of(one), records_of(two), 2e-5);
  // From the save after 26 steps; the norms before it decide what is left out.
  std::vector<std::string> again = kSkipping;
  again.push_back(cat("--checkpoint.restore_from=", one, "/epoch_5_step_25"));
  const std::string continued = folder.file("continued");
  run(continued, again);
  const std::vector<Json> wanted = records_of(one), found = records_of(continued);
  ASSERT_EQ(found.size(), 14U);
  for (size_t i = 0; i < found.size(); ++i) expect_same(found[i], wanted[i + 26]);
  std::set<int64_t> later = skipped;
  std::erase_if(later, [](int64_t step) { return step < 26; });
  EXPECT_EQ(skipped_steps(continued), later);
}

/// Whether all weights of a run's export are finite; they are float32.
bool has_finite_weights(const std::string& folder) {
  const std::string bytes = read_file(
      path_join(test::latest_of(folder), "model/consolidated/model-00001-of-00001.safetensors"));
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  for (size_t at = sizeof(header) + header; at < bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    if (!std::isfinite(value)) return false;
  }
  return true;
}

TEST(SkippedUpdatesTest, WhatIsNotFiniteIsLeftOutHoweverFewNormsAreKnown) {
  const TemporaryDirectory folder;
  for (const int num_ranks : {1, 2}) {
    for (const char* stops : {"true", "false"}) {
      SCOPED_TRACE(cat(num_ranks, " ranks, stop_on_non_finite ", stops));
      const auto run_with = [&](const char* on_spike) {
        const std::string place = folder.file(cat(on_spike, num_ranks, stops));
        // After the first update every gradient is NaN.
        const ProgramResult result = test::run_program(
            test::on({num_ranks, {}},
                     test::smoke_run(
                         place, {"--optimizer.lr=1e36", "--step_scheduler.max_steps=4",
                                 "--dataloader.shuffle=false", cat("--stop_on_non_finite=", stops),
                                 cat("--clip_grad_norm.on_spike=", on_spike)})));
        return std::pair(place, result);
      };
      const auto [place, result] = run_with("skip");
      EXPECT_EQ(result.status, 0) << result.err;
      EXPECT_THAT(result.err, testing::HasSubstr("step 1: its update is left out, since the "
                                                 "gradient norm is nan [clip_grad_norm.on_spike]"));
      EXPECT_EQ(skipped_steps(place), (std::set<int64_t>{1, 2, 3}));
      EXPECT_TRUE(has_finite_weights(place));
      const auto [usual, ended] = run_with("continue");
      EXPECT_EQ(ended.status, stops == std::string("true") ? 5 : 0) << ended.err;
      EXPECT_TRUE(ended.status != 0 || !has_finite_weights(usual));
    }
  }
}

TEST(SkippedUpdatesTest, TheEventNamesTheDataThatAreLeftOut) {
  const TemporaryDirectory folder;
  run(folder.file("run"), kSkipping);
  int64_t num_events = 0;
  for (const Json& event : read_records(folder.file("run/events.jsonl"))) {
    if (event.at("event").as_string() != "skipped_update") continue;
    ++num_events;
    const int64_t step = event.at("step").as_int();
    const auto place_of = [](const Json& position) {
      return std::pair(position.at("epoch").as_int(), position.at("consumed").as_int());
    };
    // Five steps an epoch, of four rows each.
    const int64_t of_epoch = step % 5;
    EXPECT_EQ(place_of(event.at("data_from")), (std::pair{step / 5, 4 * of_epoch}));
    EXPECT_EQ(place_of(event.at("data_until")), (std::pair{step / 5, 4 * (of_epoch + 1)}));
  }
  EXPECT_GE(num_events, 1);
}

}  // namespace
}  // namespace automodel::recipes

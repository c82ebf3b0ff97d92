// `clip_grad_norm.on_spike: rollback`: back to the newest checkpoint, on with the data after the
// spike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kRowsOfStep = 4, kSteps = 60;

/// Rows of school maths for sixty steps in their order; those of some steps are one word many
/// times, which gives a norm far above the others.
std::string write_rows(const TemporaryDirectory& folder, const std::set<int64_t>& odd_steps) {
  const std::vector<std::string> rows =
      split(read_file(test::source_file("recipes/data/gsm8k_train.jsonl")), '\n');
  std::string word;
  for (int i = 0; i < 100; ++i) word += " seven";
  Json odd = Json::object();
  odd["question"] = "What?";
  odd["answer"] = word;
  std::string text;
  for (int64_t row = 0; row < kRowsOfStep * kSteps; ++row) {
    const bool is_odd = odd_steps.contains(row / kRowsOfStep);
    text += cat(is_odd ? odd.dump() : rows[static_cast<size_t>(row)], "\n");
  }
  folder.write("rows.jsonl", text);
  return folder.file("rows.jsonl");
}

/// A run over those rows in `folder`, which saves after the steps 7, 15, 23, ...
std::vector<std::string> run_over(const std::string& rows, const std::string& folder,
                                  const std::vector<std::string>& more) {
  std::vector<std::string> all = {cat("--dataset.path_or_dataset_id=", rows),
                                  "--dataloader.shuffle=false",
                                  "--optimizer.lr=3e-3",
                                  cat("--step_scheduler.max_steps=", kSteps),
                                  "--step_scheduler.ckpt_every_steps=8",
                                  "--checkpoint.save_consolidated=false",
                                  "--clip_grad_norm.spike_multiple=2",
                                  "--clip_grad_norm.on_spike=rollback"};
  all.insert(all.end(), more.begin(), more.end());
  return test::smoke_run(folder, all);
}

ProgramResult run(const std::vector<std::string>& arguments, const test::Spread& spread = {}) {
  ProgramResult result = test::run_program(test::on(spread, arguments));
  EXPECT_EQ(result.status, 0) << result.err;
  return result;
}

std::vector<Json> records_of(const std::string& folder) {
  return read_records(path_join(folder, "training.jsonl"));
}

std::vector<Json> events_of(const std::string& folder, std::string_view name) {
  std::vector<Json> found = read_records(path_join(folder, "events.jsonl"));
  std::erase_if(found, [&](const Json& event) { return event.at("event").as_string() != name; });
  return found;
}

/// Equal to the last bit.
void expect_same(const std::vector<Json>& found, const std::vector<Json>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    for (const char* key : {"step", "loss", "grad_norm", "lr", "num_label_tokens"}) {
      EXPECT_EQ(found[i].at(key).dump(), wanted[i].at(key).dump()) << key << " of record " << i;
    }
  }
}

std::vector<Json> from_step(std::vector<Json> records, int64_t step) {
  std::erase_if(records, [&](const Json& record) { return record.at("step").as_int() < step; });
  return records;
}

TEST(RollbackTest, KeysThatActAtSpikesAreWarnedOfWhereNothingDoes) {
  const auto warnings = [](const char* on_spike) {
    const ProgramResult result = test::run_program(
        {test::automodel_binary(), "check", test::source_file("recipes/smoke/tiny_llama_sft.yaml"),
         cat("--clip_grad_norm.on_spike=", on_spike), "--clip_grad_norm.spike_multiple=5",
         "--clip_grad_norm.max_rollbacks=2"});
    return cat(result.out, result.err);
  };
  constexpr const char* kMultiple =
      "spike_multiple has no effect without on_spike: skip or rollback";
  constexpr const char* kRollbacks = "max_rollbacks has no effect without on_spike: rollback";
  EXPECT_THAT(warnings("continue"), AllOf(HasSubstr(kMultiple), HasSubstr(kRollbacks)));
  EXPECT_THAT(warnings("skip"), AllOf(Not(HasSubstr(kMultiple)), HasSubstr(kRollbacks)));
  EXPECT_THAT(warnings("rollback"), Not(HasSubstr("has no effect without")));
}

TEST(RollbackTest, ASpikeTakesTheRunBackAndOnWithTheDataAfterIt) {
  const TemporaryDirectory folder;
  const std::string rows = write_rows(folder, {29});
  const std::string rolled = folder.file("rolled");
  const ProgramResult result = run(run_over(rows, rolled, {}));
  const std::string checkpoint = path_join(rolled, "epoch_0_step_23");
  EXPECT_THAT(result.err, testing::ContainsRegex("step 29: the gradient norm [0-9.]+ is above 2 "
                                                 "times the usual [0-9.]+; back to "));
  EXPECT_THAT(result.err,
              testing::HasSubstr(cat("; back to ", checkpoint,
                                     ", next step 24, without the data since then (rollback 1 of "
                                     "3) [clip_grad_norm.on_spike]")));
  const std::vector<Json> events = events_of(rolled, "rollback");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].at("step").as_int(), 29);
  EXPECT_EQ(events[0].at("next_step").as_int(), 24);
  EXPECT_EQ(events[0].at("from").as_string(), checkpoint);
  EXPECT_EQ(events[0].at("rollback").as_int(), 1);
  EXPECT_EQ(events[0].at("data_from").at("consumed").as_int(), 24 * kRowsOfStep);
  EXPECT_EQ(events[0].at("data_until").at("consumed").as_int(), 30 * kRowsOfStep);
  EXPECT_TRUE(events_of(rolled, "skipped_update").empty());
  // Six of the sixty batches are left out, and no step is recorded twice.
  const std::vector<Json> records = records_of(rolled);
  ASSERT_EQ(records.size(), 54U);
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].at("step").as_int(), static_cast<int64_t>(i));
  }
  EXPECT_TRUE(path_exists(path_join(rolled, "epoch_0_step_53")));
  // A run from that checkpoint whose data have the six batches at their end does the same.
  std::vector<std::string> lines = split(trim(read_file(rows)), '\n');
  std::rotate(lines.begin(), lines.begin() + 24, lines.end());
  folder.write("moved.jsonl", join(lines, "\n") + "\n");
  const std::string wanted = folder.file("wanted");
  run(run_over(folder.file("moved.jsonl"), wanted,
               {"--checkpoint.allow_changed_data=true", "--clip_grad_norm.on_spike=continue",
                cat("--checkpoint.restore_from=", checkpoint)}));
  std::vector<Json> same = records_of(wanted);
  ASSERT_EQ(same.size(), 36U);
  same.resize(30);
  expect_same(from_step(records, 24), same);
}

TEST(RollbackTest, RanksGoBackTogetherAndARunThatIsKilledThenGoesBackAgain) {
  const TemporaryDirectory folder;
  const std::string rows = write_rows(folder, {29, 45});
  const std::string one = folder.file("one"), two = folder.file("two");
  run(run_over(rows, one, {}));
  // The second odd batch comes at step 39, where the run would save.
  ASSERT_EQ(events_of(one, "rollback").size(), 2U);
  EXPECT_EQ(events_of(one, "rollback")[1].at("step").as_int(), 39);
  EXPECT_EQ(events_of(one, "rollback")[1].at("next_step").as_int(), 32);
  run(run_over(rows, two, {"--checkpoint.is_async=true"}),
      test::sharded(2, {"--distributed.reshard_after_forward=false"}));
  EXPECT_EQ(events_of(two, "rollback").size(), 2U);
  test::expect_equal_records(records_of(one), records_of(two), 2e-5);
  const std::string continued = folder.file("continued");
  run(run_over(rows, continued,
               {cat("--checkpoint.restore_from=", one, "/epoch_0_step_31"),
                "--clip_grad_norm.max_rollbacks=2"}));
  ASSERT_EQ(events_of(continued, "rollback").size(), 1U);
  EXPECT_EQ(events_of(continued, "rollback")[0].at("rollback").as_int(), 2);
  expect_same(records_of(continued), from_step(records_of(one), 32));
}

TEST(RollbackTest, TheNumberOfRollbacksIsBounded) {
  const TemporaryDirectory folder;
  const std::string rows = write_rows(folder, {29, 45});
  const auto arguments = run_over(rows, folder.file("run"), {"--clip_grad_norm.max_rollbacks=1"});
  for (const int num_ranks : {1, 2}) {
    SCOPED_TRACE(num_ranks);
    remove_tree(folder.file("run"));
    const ProgramResult result = test::run_program(test::on({num_ranks, {}}, arguments));
    EXPECT_EQ(result.status, 5) << result.err;
    EXPECT_THAT(result.err,
                testing::ContainsRegex("step 39: the gradient norm [0-9.]+ is above 2 times the "
                                       "usual [0-9.]+, after 1 rollback already; nothing was "
                                       "updated. Lower the learning rate, look at the data, or "
                                       "raise clip_grad_norm.max_rollbacks\n"));
    EXPECT_EQ(events_of(folder.file("run"), "failure").size(), 1U);
  }
}

TEST(RollbackTest, WhatIsNotFiniteIsASpikeWhateverIsKnownOfNorms) {
  const TemporaryDirectory folder;
  const std::string rows = write_rows(folder, {});
  const std::string good = folder.file("good");
  run(run_over(rows, good, {"--step_scheduler.max_steps=8"}));
  for (const int num_ranks : {1, 2}) {
    SCOPED_TRACE(num_ranks);
    const std::string place = folder.file(cat("run", num_ranks));
    // The update of step 8 makes every later gradient NaN, each time that the run is back there.
    const ProgramResult result = test::run_program(test::on(
        {num_ranks, {}}, run_over(rows, place,
                                  {"--optimizer.lr=1e38", "--lr_scheduler.lr_decay_style=constant",
                                   "--lr_scheduler.lr_warmup_steps=0",
                                   "--lr_scheduler.override_opt_param_scheduler=true",
                                   "--clip_grad_norm.spike_multiple=1e9",
                                   cat("--checkpoint.restore_from=", good, "/epoch_0_step_7")})));
    EXPECT_EQ(result.status, 5) << result.err;
    EXPECT_THAT(result.err,
                HasSubstr("step 9: the gradient norm is nan, after 3 rollbacks already; nothing "
                          "was updated. Lower the learning rate, "));
    const std::vector<Json> events = events_of(place, "rollback");
    ASSERT_EQ(events.size(), 3U);
    int64_t from = 8 * kRowsOfStep;
    for (const Json& event : events) {
      EXPECT_EQ(event.at("data_from").at("consumed").as_int(), from);
      from += 2 * kRowsOfStep;
      EXPECT_EQ(event.at("data_until").at("consumed").as_int(), from);
    }
  }
}

TEST(RollbackTest, WithoutACheckpointTheUpdateIsLeftOut) {
  const TemporaryDirectory folder;
  const std::string rows = write_rows(folder, {29});
  const std::string rolled = folder.file("rolled"), skipped = folder.file("skipped");
  run(run_over(rows, rolled, {"--step_scheduler.ckpt_every_steps=40"}));
  run(run_over(rows, skipped,
               {"--step_scheduler.ckpt_every_steps=40", "--clip_grad_norm.on_spike=skip"}));
  EXPECT_TRUE(events_of(rolled, "rollback").empty());
  EXPECT_EQ(events_of(rolled, "skipped_update").size(), 1U);
  expect_same(records_of(rolled), records_of(skipped));
}

}  // namespace
}  // namespace automodel::recipes

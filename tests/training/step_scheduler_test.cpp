#include "training/step_scheduler.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace automodel::training {
namespace {

StepSchedulerConfig config(int64_t global, int64_t local) {
  StepSchedulerConfig config;
  config.global_batch_size = global;
  config.local_batch_size = local;
  return config;
}

/// Steps at which a whole run saves, given that epochs are whole.
std::vector<int64_t> checkpoint_steps(StepScheduler scheduler) {
  std::vector<int64_t> steps;
  while (!scheduler.is_done()) {
    for (int64_t i = 0; i < *scheduler.epoch_length() && !scheduler.is_done(); ++i) {
      const bool ends_epoch = i + 1 == *scheduler.epoch_length();
      if (scheduler.is_checkpoint_step(ends_epoch, false)) steps.push_back(scheduler.step());
      scheduler.advance_step();
    }
    scheduler.advance_epoch();
  }
  return steps;
}

TEST(StepSchedulerTest, DefaultsAreUpstreams) {
  const StepSchedulerConfig defaults;
  EXPECT_EQ(defaults.global_batch_size, 32);
  EXPECT_EQ(defaults.local_batch_size, 1);
  EXPECT_EQ(defaults.num_epochs, 10);
  EXPECT_EQ(defaults.ckpt_every_steps, 100);
  EXPECT_TRUE(defaults.save_checkpoint_every_epoch);
}

TEST(StepSchedulerTest, AccumulatesToTheGlobalBatch) {
  EXPECT_EQ(StepScheduler(config(32, 4), 2, 100).grad_accumulation_steps(), 4);
}

TEST(StepSchedulerTest, NamesTheThreeNumbersThatDoNotFit) {
  try {
    StepScheduler(config(10, 4), 2, 100);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "step_scheduler.global_batch_size: global_batch_size (10) must be divisible by "
                 "local_batch_size * dp_size (4 * 2)");
  }
}

TEST(StepSchedulerTest, APartialLastGroupIsAStep) {
  EXPECT_EQ(StepScheduler(config(2, 1), 1, 5).epoch_length(), 3);
}

TEST(StepSchedulerTest, MaxStepsAndEpochsBothBoundTheRun) {
  StepSchedulerConfig c = config(1, 1);
  c.max_steps = 7;
  EXPECT_EQ(StepScheduler(c, 1, 4).max_steps(), 7);
  c.num_epochs = 1;
  EXPECT_EQ(StepScheduler(c, 1, 4).max_steps(), 4);
}

TEST(StepSchedulerTest, NullEpochsFollowFromMaxSteps) {
  StepSchedulerConfig c = config(1, 1);
  c.num_epochs.reset();
  c.max_steps = 10;
  EXPECT_EQ(StepScheduler(c, 1, 4).num_epochs(), 3);
}

TEST(StepSchedulerTest, SavesAtEpochEndsAndAtTheEnd) {
  StepSchedulerConfig c = config(1, 1);
  c.max_steps = 10;
  c.ckpt_every_steps = 1000;
  EXPECT_EQ(checkpoint_steps(StepScheduler(c, 1, 4)), (std::vector<int64_t>{3, 7, 9}));
}

TEST(StepSchedulerTest, SavesEveryNthStep) {
  StepSchedulerConfig c = config(1, 1);
  c.max_steps = 10;
  c.ckpt_every_steps = 4;
  c.save_checkpoint_every_epoch = false;
  EXPECT_EQ(checkpoint_steps(StepScheduler(c, 1, 100)), (std::vector<int64_t>{3, 7, 9}));
}

TEST(StepSchedulerTest, ValidatesOnCheckpointStepsUnlessSwitchedOff) {
  StepSchedulerConfig c = config(1, 1);
  c.max_steps = 1;
  EXPECT_TRUE(StepScheduler(c, 1, 4).is_validation_step(false, false));
  c.validate_on_checkpoint = false;
  EXPECT_FALSE(StepScheduler(c, 1, 4).is_validation_step(false, false));
}

TEST(StepSchedulerTest, NeverValidatesAfterASignal) {
  StepSchedulerConfig c = config(1, 1);
  c.val_every_steps = 1;
  EXPECT_FALSE(StepScheduler(c, 1, 4).is_validation_step(false, true));
  EXPECT_TRUE(StepScheduler(c, 1, 4).is_checkpoint_step(false, true));
}

TEST(StepSchedulerTest, AStreamNeedsMaxSteps) {
  EXPECT_THROW(StepScheduler(config(1, 1), 1, std::nullopt), UserError);
  StepSchedulerConfig c = config(1, 1);
  c.max_steps = 9;
  c.ckpt_every_steps.reset();
  EXPECT_EQ(StepScheduler(c, 1, std::nullopt).checkpoint_interval(), 4);
}

TEST(StepSchedulerTest, TheStateCountsThePresentStepAsDone) {
  StepSchedulerConfig c = config(1, 1);
  c.max_steps = 10;
  StepScheduler scheduler(c, 1, 4);
  scheduler.advance_step();
  StepScheduler copy(c, 1, 4);
  copy.load_state(scheduler.state());
  EXPECT_EQ(copy.step(), 2);
  EXPECT_EQ(copy.epoch(), 0);
}

/// Three epochs of 8 batches, in the second of which other data with epochs of 5 begin.
TEST(StepSchedulerTest, WhatWasDoneOfAnEpochThatBeginsAnewIsBesideTheEpochsToCome) {
  StepSchedulerConfig of_epochs = config(2, 2);
  of_epochs.num_epochs = 3;
  StepScheduler first(of_epochs, 1, 8);
  first.load_state(Json::Object{{"step", int64_t{11}}, {"epoch", int64_t{1}}});
  StepScheduler under_way(of_epochs, 1, 5);
  under_way.load_state(first.state());
  EXPECT_EQ(under_way.max_steps(), 15);
  under_way.load_state(Json::Object{{"step", int64_t{11}}, {"epoch", int64_t{1}}});
  under_way.begin_epoch_anew(/*is_over=*/false);
  EXPECT_EQ(under_way.max_steps(), 11 + 2 * 5);
  StepScheduler over(of_epochs, 1, 5);
  over.load_state(Json::Object{{"step", int64_t{16}}, {"epoch", int64_t{1}}});
  over.begin_epoch_anew(/*is_over=*/true);
  EXPECT_EQ(over.max_steps(), 16 + 5);
  StepScheduler again(of_epochs, 1, 5);  // the next start knows it
  again.load_state(over.state());
  EXPECT_EQ(again.max_steps(), 16 + 5);

  StepSchedulerConfig of_steps = config(2, 2);
  of_steps.num_epochs = std::nullopt;
  of_steps.max_steps = 40;
  StepScheduler by_steps(of_steps, 1, 11);
  by_steps.load_state(Json::Object{{"step", int64_t{30}}, {"epoch", int64_t{10}}});
  EXPECT_TRUE(by_steps.is_done());  // of epochs of 11, four are enough for 40 steps
  by_steps.begin_epoch_anew(/*is_over=*/false);
  EXPECT_FALSE(by_steps.is_done());
  EXPECT_EQ(by_steps.max_steps(), 40);
  EXPECT_EQ(by_steps.num_epochs(), 11);
}

TEST(StepSchedulerTest, KnowsOfCheckpointsBeforeTheLastOne) {
  StepSchedulerConfig c = config(1, 1);
  c.num_epochs = 1;
  c.ckpt_every_steps = 4;
  StepScheduler scheduler(c, 1, 10);  // saves after steps 3, 7 and 9
  for (const bool expected : {true, true, true, true, true, true, true, true, false, false}) {
    EXPECT_EQ(scheduler.saves_before_end(), expected) << scheduler.step();
    scheduler.advance_step();
  }
  c.ckpt_every_steps = 100;
  EXPECT_FALSE(StepScheduler(c, 1, 10).saves_before_end());
  c.num_epochs = 2;
  EXPECT_TRUE(StepScheduler(c, 1, 10).saves_before_end());
  c.save_checkpoint_every_epoch = false;
  EXPECT_FALSE(StepScheduler(c, 1, 10).saves_before_end());
}

TEST(StepSchedulerTest, BatchesBeyondNumbersAreRefused) {
  StepSchedulerConfig config;
  config.global_batch_size = 4;
  config.local_batch_size = int64_t{1} << 62;
  const auto findings = check_step_scheduler(config, 4);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].text,
            "global_batch_size (4) must be divisible by local_batch_size * dp_size "
            "(4611686018427387904 * 4)");
}

}  // namespace
}  // namespace automodel::training

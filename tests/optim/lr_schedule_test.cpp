#include "optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace automodel::optim {
namespace {

LrSchedulerConfig golden_config(const std::string& style) {
  LrSchedulerConfig config;
  config.lr_decay_style = style;
  config.lr_warmup_steps = 10;
  config.lr_decay_steps = 100;
  config.init_lr = 1e-6;
  config.max_lr = 1e-5;
  config.min_lr = 1e-6;
  return config;
}

double lr_after(const LrSchedulerConfig& config, int64_t steps) {
  return LrSchedule(config, 1e-5, 0.0, 100).lr(steps);
}

// Upstream's values are given with seven digits.
void expect_rates(const LrSchedulerConfig& config,
                  const std::vector<std::pair<int64_t, double>>& rates) {
  for (const auto& [steps, rate] : rates) {
    EXPECT_NEAR(lr_after(config, steps), rate, 5e-7 * rate)
        << config.lr_decay_style << " " << steps;
  }
}

TEST(LrScheduleTest, CosineFollowsUpstreamsValues) {
  expect_rates(golden_config("cosine"), {{0, 1e-6},
                                         {1, 1.9e-6},
                                         {5, 5.5e-6},
                                         {10, 1e-5},
                                         {11, 9.997259e-6},
                                         {50, 6.281417e-6},
                                         {99, 1.002741e-6},
                                         {100, 1e-6},
                                         {101, 1e-6}});
}

TEST(LrScheduleTest, CosineWithoutWarmupStartsAtTheMaximum) {
  LrSchedulerConfig config = golden_config("cosine");
  config.lr_warmup_steps = 0;
  expect_rates(config, {{0, 1e-5}, {1, 9.997780e-6}, {50, 5.5e-6}});
}

TEST(LrScheduleTest, LinearFollowsUpstreamsValues) {
  expect_rates(golden_config("linear"), {{11, 9.9e-6}, {50, 6e-6}, {99, 1.1e-6}});
}

TEST(LrScheduleTest, InverseSquareRootFollowsUpstreamsValues) {
  expect_rates(
      golden_config("inverse-square-root"),
      {{11, 9.534626e-6}, {50, 4.472136e-6}, {99, 3.178209e-6}, {100, 3.162278e-6}, {101, 1e-6}});
}

TEST(LrScheduleTest, WsdStylesFollowUpstreamsValues) {
  const std::vector<std::tuple<std::string, double, double>> goldens = {
      {"linear", 9.55e-6, 5.5e-6},
      {"cosine", 9.944598e-6, 5.5e-6},
      {"exponential", 9.386854e-6, 4.727922e-6},
      {"minus_sqrt", 7.987539e-6, 3.636039e-6}};
  for (const auto& [style, at_81, at_90] : goldens) {
    LrSchedulerConfig config = golden_config("WSD");
    config.wsd_decay_steps = 20;
    config.lr_wsd_decay_style = style;
    expect_rates(config, {{80, 1e-5}, {81, at_81}, {90, at_90}, {100, 1e-6}});
  }
}

TEST(LrScheduleTest, ConstantStaysForEver) {
  expect_rates(golden_config("constant"), {{5, 5.5e-6}, {10, 1e-5}, {100000, 1e-5}});
}

TEST(LrScheduleTest, AnEmptySectionTakesUpstreamsDefaults) {
  const LrSchedule schedule(LrSchedulerConfig{}, 1e-3, 0.1, 200);
  EXPECT_DOUBLE_EQ(schedule.lr(0), 1e-4);
  EXPECT_DOUBLE_EQ(schedule.lr(20), 1e-3);
  EXPECT_DOUBLE_EQ(schedule.lr(200), 1e-5);
  EXPECT_DOUBLE_EQ(schedule.weight_decay(7), 0.1);
}

TEST(LrScheduleTest, WeightDecayRampsUp) {
  LrSchedulerConfig config = golden_config("constant");
  config.start_wd = 0.0;
  config.end_wd = 0.1;
  config.wd_incr_steps = 100;
  config.wd_incr_style = "linear";
  EXPECT_DOUBLE_EQ(LrSchedule(config, 1e-5, 0, 100).weight_decay(25), 0.025);
  config.wd_incr_style = "cosine";
  EXPECT_NEAR(LrSchedule(config, 1e-5, 0, 100).weight_decay(25), 0.1 * 0.14644660940672624, 1e-15);
}

TEST(LrScheduleTest, AStateGivesTheSameSchedule) {
  const LrSchedule schedule(golden_config("cosine"), 1e-5, 0.0, 100);
  const LrSchedule copy = LrSchedule::from_state(schedule.state());
  for (int64_t steps = 0; steps <= 110; ++steps) EXPECT_EQ(copy.lr(steps), schedule.lr(steps));
}

std::string unread_keys(const LrSchedulerConfig& config) {
  std::vector<std::string> keys;
  for (const auto& finding : LrSchedule::unread(config)) keys.push_back(finding.key);
  return join(keys, " ");
}

TEST(LrScheduleTest, NamesKeysThatItDoesNotRead) {
  LrSchedulerConfig config;
  EXPECT_EQ(unread_keys(config), "");
  config.min_lr = 0;
  config.init_lr = 0;
  config.wsd_decay_steps = 5;
  config.lr_wsd_decay_style = "linear";
  config.wd_incr_steps = 5;
  config.lr_decay_steps = 50;
  EXPECT_EQ(unread_keys(config), "wsd_decay_steps lr_wsd_decay_style wd_incr_steps");
  config.lr_warmup_steps = 0;
  config.lr_decay_style = "constant";
  config.wd_incr_style = "linear";
  EXPECT_EQ(unread_keys(config),
            "wsd_decay_steps lr_wsd_decay_style lr_decay_steps min_lr init_lr");
  config.lr_warmup_steps = 1;
  config.lr_decay_style = "WSD";
  EXPECT_EQ(unread_keys(config), "");
}

TEST(LrScheduleTest, NamesEverythingThatIsWrong) {
  LrSchedulerConfig config = golden_config("cosin");
  config.lr_warmup_steps = 100;
  config.min_lr = 1.0;
  try {
    const LrSchedule made(config, 1e-5, 0.0, 100);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(
        error.what(),
        "lr_scheduler.lr_decay_style: 'cosin' is not one of: constant, linear, cosine, "
        "inverse-square-root, WSD; did you mean 'cosine'?\n"
        "lr_scheduler.min_lr: min_lr 1 is larger than max_lr 1e-05\n"
        "lr_scheduler.lr_warmup_steps: lr_warmup_steps 100 must be less than lr_decay_steps 100; "
        "a shorter warm-up helps: lr_scheduler.lr_warmup_steps: 10");
  }
}

/// The decay begins before the warm-up ends, so the rate would fall at once.
TEST(LrScheduleTest, AWsdDecayFitsBehindTheWarmup) {
  LrSchedulerConfig config;
  config.lr_decay_style = "WSD";
  config.lr_wsd_decay_style = "linear";
  config.lr_warmup_steps = 10;
  config.wsd_decay_steps = 40;
  EXPECT_TRUE(LrSchedule::check(config, 1e-3, 0.0, 50).empty());
  config.wsd_decay_steps = 41;
  const auto findings = LrSchedule::check(config, 1e-3, 0.0, 50);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].key, std::string("wsd_decay_steps"));
  EXPECT_EQ(findings[0].text,
            "wsd_decay_steps 41 is more than the 40 steps between lr_warmup_steps 10 and "
            "lr_decay_steps 50, by default the steps of the run: the rate would fall at once after "
            "the warm-up");
}

}  // namespace
}  // namespace automodel::optim

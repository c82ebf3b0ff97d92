#include "loggers/progress.h"

#include <gtest/gtest.h>

namespace automodel::loggers {
namespace {

std::string blocks(int num_full) {
  std::string text;
  for (int i = 0; i < 24; ++i) text += i < num_full ? "█" : " ";
  return text;
}

TEST(ClockTextTest, WritesMinutesAndHoursOnDemand) {
  EXPECT_EQ(clock_text(0), "00:00");
  EXPECT_EQ(clock_text(65), "01:05");
  EXPECT_EQ(clock_text(59.6), "01:00");
  EXPECT_EQ(clock_text(3599), "59:59");
  EXPECT_EQ(clock_text(7209), "2:00:09");
  EXPECT_EQ(clock_text(360000), "100:00:00");
  EXPECT_EQ(clock_text(-3), "00:00");
}

TEST(ProgressBarTest, ShowsShareTimesRateAndLoss) {
  EXPECT_EQ(ProgressBar(0, 100).line(50, 20.0, 1.23456),
            "Training 50% |" + blocks(12) + "| 50/100 [00:20<00:20, 2.50 step/s] loss 1.2346");
}

TEST(ProgressBarTest, BeginsAndEnds) {
  EXPECT_EQ(ProgressBar(0, 10).line(0, 0.0, 2.0),
            "Training 0% |" + blocks(0) + "| 0/10 [00:00<?, 0.00 step/s] loss 2.0000");
  EXPECT_EQ(ProgressBar(0, 10).line(10, 5.0, 2.0),
            "Training 100% |" + blocks(24) + "| 10/10 [00:05<00:00, 2.00 step/s] loss 2.0000");
}

TEST(ProgressBarTest, StepsOfAnEarlierProcessCountAsDoneButNotForTheRate) {
  EXPECT_EQ(ProgressBar(60, 100).line(80, 10.0, 0.5),
            "Training 80% |" + blocks(19) + "| 80/100 [00:10<00:10, 2.00 step/s] loss 0.5000");
}

TEST(ProgressBarTest, ARunWithoutAnEndShowsNoShare) {
  EXPECT_EQ(ProgressBar(0, 0).line(30, 3661.0, 0.5),
            "Training 30 [1:01:01, 0.01 step/s] loss 0.5000");
}

}  // namespace
}  // namespace automodel::loggers

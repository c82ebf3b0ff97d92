#include "loggers/progress.h"

#include <gmock/gmock.h>

#include <cmath>

namespace automodel::loggers {
namespace {

std::string blocks(int num_full) {
  std::string text;
  for (int i = 0; i < 10; ++i) text += i < num_full ? "█" : " ";
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
  EXPECT_EQ(ProgressBar(0, 100).line(50, 20.0, {.loss = 1.23456}),
            "Training 50% |" + blocks(5) + "| 50/100 [00:20<00:20, 2.50 step/s] loss 1.2346");
}

TEST(ProgressBarTest, BeginsAndEnds) {
  EXPECT_EQ(ProgressBar(0, 10).line(0, 0.0, {.loss = 2.0}),
            "Training 0% |" + blocks(0) + "| 0/10 [00:00<?, 0.00 step/s] loss 2.0000");
  EXPECT_EQ(ProgressBar(0, 10).line(10, 5.0, {.loss = 2.0}),
            "Training 100% |" + blocks(10) + "| 10/10 [00:05<00:00, 2.00 step/s] loss 2.0000");
}

TEST(ProgressBarTest, StepsOfAnEarlierProcessCountAsDoneButNotForTheRate) {
  EXPECT_EQ(ProgressBar(60, 100).line(80, 10.0, {.loss = 0.5}),
            "Training 80% |" + blocks(8) + "| 80/100 [00:10<00:10, 2.00 step/s] loss 0.5000");
}

TEST(ProgressBarTest, ShowsRatesAndMemoryWhereTheyAreKnown) {
  EXPECT_EQ(ProgressBar(0, 10).line(5, 5.0,
                                    {.loss = 2,
                                     .tokens_per_second = 5065.4,
                                     .memory_gib = 0.25,
                                     .planned_gib = 0.31,
                                     .mfu_percent = 12.4}),
            "Training 50% |" + blocks(5) +
                "| 5/10 [00:05<00:05, 1.00 step/s] loss 2.0000 5065 tok/s 0.2/0.3 GiB MFU 12%");
  EXPECT_EQ(ProgressBar(0, 0).line(5, 5.0, {.loss = 2, .memory_gib = 1.5}),
            "Training 5 [00:05, 1.00 step/s] loss 2.0000 1.5 GiB");
}

TEST(ProgressBarTest, AnArrowSaysWhereTheLossGoes) {
  const auto last_line = [](double first, double change) {
    ProgressBar bar(0, 0);
    std::string line;
    for (int step = 1; step <= 30; ++step)
      line = bar.line(step, 1, {.loss = first + change * step});
    return line;
  };
  EXPECT_THAT(last_line(3, -0.01), testing::EndsWith("loss 2.7000 ↓"));
  EXPECT_THAT(last_line(3, 0.01), testing::EndsWith("loss 3.3000 ↑"));
  EXPECT_THAT(last_line(3, 0), testing::EndsWith("loss 3.0000 →"));
}

TEST(ProgressBarTest, ANumberThatIsNoneIsInNoMean) {
  ProgressBar bar(0, 0);
  for (int step = 1; step <= 20; ++step) bar.line(step, 1, {.loss = 3});
  EXPECT_THAT(bar.line(21, 1, {.loss = std::nan("")}), testing::EndsWith("loss nan"));
  EXPECT_THAT(bar.line(22, 1, {.loss = 3}), testing::EndsWith("loss 3.0000 →"));
}

TEST(ProgressBarTest, ARunWithoutAnEndShowsNoShare) {
  EXPECT_EQ(ProgressBar(0, 0).line(30, 3661.0, {.loss = 0.5}),
            "Training 30 [1:01:01, 0.01 step/s] loss 0.5000");
}

}  // namespace
}  // namespace automodel::loggers

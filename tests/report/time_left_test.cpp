#include "report/facts/time_left.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/run_folder.h"

namespace automodel::report {
namespace {

using test::step_line;

std::string at(int seconds) {
  return cat("2026-08-01T0", seconds / 3600, ":", seconds / 600 % 6, seconds / 60 % 10, ":",
             seconds % 60 / 10, seconds % 10, ".000Z");
}

/// A run of 100 steps, whose first ones were recorded at these seconds.
RecordedRun run_at(const std::vector<int>& seconds, const std::string& events = "") {
  RecordedRun run;
  int64_t step = 0;
  for (const int time : seconds) add_steps(step_line(step++, "1", at(time)), run.steps);
  run.description["max_steps"] = 100;
  run.events.add(events);
  return run;
}

std::string event(const std::string& name, const std::string& more) {
  return cat("{\"event\": \"", name, "\"", more, "}\n");
}

TEST(TimeLeftTest, ItIsThatOfTheMedianStep) {
  EXPECT_EQ(seconds_left(run_at({0, 2, 4, 6})), 96 * 2);
  EXPECT_EQ(seconds_left(run_at({0, 2, 4, 6, 60})), 95 * 2);  // one step was slow
  EXPECT_TRUE(std::isnan(seconds_left(run_at({5}))));
  EXPECT_TRUE(std::isnan(seconds_left(run_at({}))));
}

TEST(TimeLeftTest, TheGapBeforeAResumeAndStepsOfTheProcessBeforeDoNotCount) {
  // Five seconds a step, an hour's gap, then two seconds a step.
  const std::vector<int> seconds = {0, 5, 10, 15, 20, 25, 3600, 3602, 3604};
  EXPECT_EQ(seconds_left(run_at(seconds, event("resume", ", \"step\": 6"))), 91 * 2);
  EXPECT_EQ(seconds_left(run_at(seconds, event("rollback", ", \"step\": 8, \"next_step\": 6"))),
            91 * 2);
  // One step since then tells nothing.
  EXPECT_TRUE(std::isnan(seconds_left(run_at({0, 5, 3600}, event("resume", ", \"step\": 2")))));
}

TEST(TimeLeftTest, AClockThatIsSetForthIsOneSlowStep) {
  EXPECT_EQ(seconds_left(run_at({0, 2, 4, 7206, 7208})), 95 * 2);
  EXPECT_EQ(seconds_left(run_at({0, 2, 7204})), 97 * 2);
}

TEST(TimeLeftTest, AClockThatIsSetBackIsNoStep) {
  EXPECT_EQ(seconds_left(run_at({7200, 7202, 7204, 3, 5, 7})), 94 * 2);
  EXPECT_TRUE(std::isnan(seconds_left(run_at({7200, 3}))));
}

TEST(TimeLeftTest, ARunThatHasEndedHasNoneLeft) {
  EXPECT_TRUE(std::isnan(seconds_left(run_at({0, 2, 4}, event("end", "")))));
}

}  // namespace
}  // namespace automodel::report

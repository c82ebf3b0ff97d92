#include "report/facts/marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/run_folder.h"

namespace automodel::report {
namespace {

using test::step_line;

std::string at(int seconds) {
  return cat("2026-08-01T00:", seconds / 600, seconds / 60 % 10, ":", seconds % 60 / 10,
             seconds % 10, ".000Z");
}

std::string event(const std::string& name, int seconds, const std::string& more = "") {
  return cat("{\"event\": \"", name, "\", \"timestamp\": \"", at(seconds), "\"", more, "}\n");
}

/// A run whose steps were recorded at these seconds.
RecordedRun run_at(const std::vector<int>& seconds, const std::string& events) {
  RecordedRun run;
  int64_t step = 0;
  for (const int time : seconds) add_steps(step_line(step++, "1", at(time)), run.steps);
  run.events.add(events);
  return run;
}

std::string words(const RecordedRun& run, size_t most = 100) {
  std::vector<std::string> all;
  for (const EventMark& mark : event_marks(run, most)) {
    all.push_back(cat(mark.row, " ", mark.short_text));
  }
  return join(all, "; ");
}

TEST(MarksTest, AnEventWithAStepLiesThere) {
  const RecordedRun run = run_at(
      {0, 1, 2, 3},
      event("advice", 9, ", \"step\": 2, \"text\": \"t\"") + event("save", 9, ", \"step\": 1") +
          event("skipped_update", 9, ", \"step\": 0") + event("preempted", 9, ", \"step\": 4"));
  EXPECT_EQ(words(run), "0 skipped_update, step 0; 2 advice, step 2; 3 preempted, step 4");
  EXPECT_EQ(event_marks(run, 100)[1].text, "advice, step 2, 2026-08-01 00:00:09 UTC: t");
}

TEST(MarksTest, AFailureIsTheEndOfItsProcess) {
  // Fails after step 3, goes on from step 2.
  const std::string events = event("start", 0) + event("failure", 4, ", \"text\": \"t\"") +
                             event("start", 100) + event("resume", 100, ", \"step\": 2") +
                             event("failure", 110);
  EXPECT_EQ(words(run_at({0, 1, 101, 102, 103}, events)), "1 failure; 2 resume, step 2; 4 failure");
}

TEST(MarksTest, WhatTheClockSaysDoesNotMoveAFailure) {
  const std::string events = event("start", 1000) + event("failure", 1004) + event("start", 10) +
                             event("resume", 10, ", \"step\": 2") + event("failure", 14);
  // The clock was set back between the processes: no search by time finds the second failure.
  EXPECT_EQ(words(run_at({1000, 1001, 11, 12, 13}, events)),
            "1 failure; 2 resume, step 2; 4 failure");
  // And inside a process, back and forth.
  EXPECT_EQ(words(run_at({1000, 5, 6, 3000, 7}, event("start", 999) + event("failure", 8))),
            "4 failure");
  // Or between the last step and the failure.
  EXPECT_EQ(words(run_at({1000, 1001, 1002}, event("start", 999) + event("failure", 3))),
            "2 failure");
}

TEST(MarksTest, WithoutAStepTheTimeIsLookedForAmongTheStepsOfTheProcess) {
  const std::string events = event("start", 0) + event("advice", 2) + event("start", 100) +
                             event("resume", 100, ", \"step\": 3") + event("advice", 102);
  EXPECT_EQ(words(run_at({0, 1, 3, 101, 102, 103}, events)),
            "1 advice; 3 resume, step 3; 4 advice");
}

TEST(MarksTest, NeighboursOfAKindAreOneMarkAndTheGravestStay) {
  std::vector<int> seconds;
  std::string events;
  for (int i = 0; i < 2000; ++i) {
    seconds.push_back(i);
    events += event("skipped_update", i, cat(", \"step\": ", i));
    if (i % 500 == 0) events += event("failure", i, cat(", \"step\": ", i));
  }
  const RecordedRun run = run_at(seconds, events);
  const auto marks = event_marks(run, 50);
  EXPECT_EQ(marks.size(), 50U);
  EXPECT_EQ(std::ranges::count(marks, 0U, &EventMark::kind), 4);
  EXPECT_THAT(words(run), testing::HasSubstr("20 x skipped_update, steps 20 to 39"));
}

TEST(MarksTest, WithoutAStepThereIsNoMark) {
  EXPECT_EQ(words(run_at({}, event("failure", 3))), "");
  EXPECT_EQ(words(run_at({5}, event("failure", 3) + event("resume", 4, ", \"step\": 0"))),
            "0 resume, step 0");
}

}  // namespace
}  // namespace automodel::report

#include "trackers/background_tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>

#include "core/clock.h"
#include "core/error.h"
#include "support/cpu_seconds.h"
#include "support/errors.h"

namespace automodel::trackers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Outcome = Delivery::Outcome;

constexpr double kPatience = 60;

/// What a tracker of the tests sees and does.
struct Script {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int64_t> steps;  // that it took
  std::vector<RunEnd> ends;
  int num_starts = 0;
  bool is_blocked = false;  // calls do not come back until it is false
  bool heeds_cancel = true;
  bool is_cancelled = false;
  std::function<Delivery(size_t num_calls)> deliver;  // what comes of the call of this number
  std::function<Delivery(int num_calls)> start;
  size_t num_deliveries = 0;
  double idle_seconds = 0;
  int num_idle = 0;

  void wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::duration<double>(kPatience), condition));
  }
  void set_blocked(bool value) {
    const std::lock_guard lock(mutex);
    is_blocked = value;
    changed.notify_all();
  }
};

class ScriptedTracker final : public Tracker {
 public:
  explicit ScriptedTracker(std::shared_ptr<Script> script) : script_(std::move(script)) {}

  const char* name() const override { return "Test"; }

  Delivery start() override {
    const std::lock_guard lock(script_->mutex);
    const int number = script_->num_starts++;
    script_->changed.notify_all();
    return script_->start ? script_->start(number) : Delivery{};
  }

  Delivery deliver(Records records) override {
    std::unique_lock lock(script_->mutex);
    const size_t number = script_->num_deliveries++;
    script_->changed.notify_all();
    script_->changed.wait(lock, [&] {
      return !script_->is_blocked || (script_->heeds_cancel && script_->is_cancelled);
    });
    if (script_->is_cancelled) return {Outcome::kLater, 0, "cancelled"};
    Delivery delivery{Outcome::kDone, records.size(), ""};
    if (script_->deliver) delivery = script_->deliver(number);
    if (delivery.outcome == Outcome::kDone) {
      delivery.num_records = std::min(delivery.num_records, records.size());
      for (size_t i = 0; i < delivery.num_records; ++i) script_->steps.push_back(records[i]->step);
    }
    script_->changed.notify_all();
    return delivery;
  }

  Delivery finish(RunEnd end) override {
    const std::lock_guard lock(script_->mutex);
    script_->ends.push_back(end);
    return {};
  }

  double idle_seconds() const override { return script_->idle_seconds; }

  void idle() override {
    const std::lock_guard lock(script_->mutex);
    ++script_->num_idle;
    script_->changed.notify_all();
  }

  void cancel() override {
    const std::lock_guard lock(script_->mutex);
    script_->is_cancelled = true;
    script_->changed.notify_all();
  }

 private:
  std::shared_ptr<Script> script_;
};

class BackgroundTrackerTest : public testing::Test {
 protected:
  BackgroundTrackerTest() { options_.backoff_seconds = 0.001; }

  BackgroundTracker& tracker() {
    if (tracker_ == nullptr) {
      tracker_ =
          std::make_unique<BackgroundTracker>(std::make_unique<ScriptedTracker>(script_), options_,
                                              std::make_shared<LeavingReporter>(warnings_));
    }
    return *tracker_;
  }
  void add(int64_t step, size_t num_values = 1) {
    Record record;
    record.step = step;
    record.values.resize(num_values, {"loss", 1.0});
    tracker().add(std::make_shared<const Record>(std::move(record)));
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  test::Warnings warnings_;
  QueueOptions options_;
  std::unique_ptr<BackgroundTracker> tracker_;
};

TEST_F(BackgroundTrackerTest, RecordsArriveInTheirOrder) {
  for (int64_t step = 0; step < 1000; ++step) add(step);
  const Tally tally = tracker().end(RunEnd::kFinished, kPatience);
  EXPECT_EQ(tally.num_sent, 1000);
  EXPECT_EQ(tally.num_lost, 0);
  EXPECT_TRUE(tally.has_finished);
  EXPECT_EQ(tally.problem, "");
  ASSERT_THAT(script_->steps, SizeIs(1000));
  EXPECT_TRUE(std::is_sorted(script_->steps.begin(), script_->steps.end()));
  EXPECT_THAT(script_->ends, ElementsAre(RunEnd::kFinished));
  EXPECT_THAT(warnings_.texts, IsEmpty());
}

/// Half a percent of a step of 50 ms is 250 us. A call that waits for the tracker never returns.
TEST_F(BackgroundTrackerTest, ABlockedTrackerDelaysNobody) {
  script_->is_blocked = true;
  std::vector<double> seconds;
  for (int64_t step = 0; step < 1000; ++step) {
    const double begin = test::thread_cpu_seconds();
    add(step, 20);
    seconds.push_back(test::thread_cpu_seconds() - begin);
  }
  std::nth_element(seconds.begin(), seconds.begin() + 500, seconds.end());
  EXPECT_LT(seconds[500], 250e-6);
  script_->set_blocked(false);
  EXPECT_EQ(tracker().end(RunEnd::kFinished, kPatience).num_sent, 1000);
}

/// One record is on its way, ten numbers wait: the oldest of those that wait are given up.
TEST_F(BackgroundTrackerTest, TheQueueIsBounded) {
  options_.most_values = 10;
  script_->is_blocked = true;
  add(0);
  script_->wait([&] { return script_->num_deliveries == 1; });
  for (int64_t step = 1; step <= 100; ++step) add(step);
  script_->set_blocked(false);
  const Tally tally = tracker().end(RunEnd::kFinished, kPatience);
  EXPECT_THAT(script_->steps, ElementsAre(0, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100));
  EXPECT_EQ(tally.num_sent, 11);
  EXPECT_EQ(tally.num_lost, 90);
}

TEST_F(BackgroundTrackerTest, FailuresThatPassLoseNothing) {
  script_->start = [](int number) {
    return number < 3 ? Delivery{Outcome::kLater, 0, "no answer"} : Delivery{};
  };
  script_->deliver = [](size_t number) {
    return number % 2 == 0 ? Delivery{Outcome::kLater, 0, "busy"} : Delivery{Outcome::kDone, 7, ""};
  };
  for (int64_t step = 0; step < 100; ++step) add(step);
  script_->wait([&] { return script_->steps.size() == 100; });
  const Tally tally = tracker().end(RunEnd::kStopped, kPatience);
  EXPECT_EQ(tally.num_sent, 100);
  EXPECT_EQ(tally.num_lost, 0);
  EXPECT_TRUE(std::is_sorted(script_->steps.begin(), script_->steps.end()));
  EXPECT_THAT(script_->ends, ElementsAre(RunEnd::kStopped));
  ASSERT_FALSE(warnings_.texts.empty());
  EXPECT_EQ(warnings_.texts[0], "Test: no answer; trying again while the run goes on");
}

TEST_F(BackgroundTrackerTest, RecordsThatAreRefusedAreCountedAndToldOnce) {
  script_->deliver = [](size_t number) {
    return number < 2 ? Delivery{Outcome::kRefused, 1, "no room"} : Delivery{Outcome::kDone, 1, ""};
  };
  for (int64_t step = 0; step < 10; ++step) add(step);
  const Tally tally = tracker().end(RunEnd::kFinished, kPatience);
  EXPECT_EQ(tally.num_sent, 8);
  EXPECT_EQ(tally.num_lost, 2);
  EXPECT_EQ(tally.problem, "no room");
  EXPECT_THAT(warnings_.texts, ElementsAre("Test: records are lost: no room; the run goes on"));
}

TEST_F(BackgroundTrackerTest, WhatALibraryThrowsEndsNothing) {
  script_->deliver = [](size_t number) {
    if (number == 0) throw std::runtime_error("no such option");
    return Delivery{Outcome::kDone, 1, ""};
  };
  for (int64_t step = 0; step < 3; ++step) add(step);
  const Tally tally = tracker().end(RunEnd::kFinished, kPatience);
  EXPECT_EQ(tally.num_sent + tally.num_lost, 3);
  EXPECT_GE(tally.num_lost, 1);
  EXPECT_THAT(warnings_.texts,
              ElementsAre("Test: records are lost: no such option; the run goes on"));
  script_->start = [](int) -> Delivery { throw std::runtime_error("no such host"); };
  tracker_ = nullptr;
  EXPECT_EQ(tracker().end(RunEnd::kFinished, kPatience).problem, "no such host");
}

TEST_F(BackgroundTrackerTest, ATrackerThatRefusesTheRunGetsNothing) {
  script_->start = [](int) { return Delivery{Outcome::kRefused, 0, "who are you?"}; };
  add(0);
  script_->wait([&] { return script_->num_starts == 1; });
  add(1);
  const Tally tally = tracker().end(RunEnd::kFinished, kPatience);
  EXPECT_FALSE(tally.has_started);
  EXPECT_EQ(tally.num_lost, 2);
  EXPECT_EQ(script_->num_starts, 1);
  EXPECT_THAT(script_->ends, IsEmpty());
  EXPECT_EQ(tally.problem, "who are you?");
}

TEST_F(BackgroundTrackerTest, TheEndGivesUpWhatDoesNotPass) {
  script_->start = [](int) { return Delivery{Outcome::kLater, 0, "no answer"}; };
  add(0);
  const double begin = monotonic_seconds();
  const Tally tally = tracker().end(RunEnd::kFinished, kPatience);
  EXPECT_LT(monotonic_seconds() - begin, kPatience / 2);
  EXPECT_FALSE(tally.has_started);
  EXPECT_EQ(tally.num_lost, 1);
  EXPECT_EQ(tally.problem, "no answer");
}

TEST_F(BackgroundTrackerTest, TheEndCancelsACallThatTakesTooLong) {
  script_->is_blocked = true;
  add(0);
  script_->wait([&] { return script_->num_deliveries == 1; });
  const Tally tally = tracker().end(RunEnd::kFinished, 0.01);
  EXPECT_EQ(tally.num_lost, 1);
  EXPECT_FALSE(tally.has_finished);
  EXPECT_EQ(tally.problem, "no answer within 0.0 s");
}

TEST_F(BackgroundTrackerTest, ACallThatNeverComesBackIsLeftBehind) {
  script_->is_blocked = true;
  script_->heeds_cancel = false;
  add(0);
  script_->wait([&] { return script_->num_deliveries == 1; });
  const Tally tally = tracker().end(RunEnd::kFinished, 0.01);
  EXPECT_EQ(tally.num_lost, 1);
  EXPECT_EQ(tally.problem, "no answer within 0.0 s");
  const size_t num_texts = warnings_.texts.size();
  script_->set_blocked(false);  // the thread leaves, and says nothing to who is gone
  script_->wait([&] { return script_.use_count() <= 2; });
  EXPECT_EQ(warnings_.texts.size(), num_texts);
}

TEST_F(BackgroundTrackerTest, ATrackerMayWantToBeCalledWhileNothingComes) {
  script_->idle_seconds = 0.001;
  tracker();
  script_->wait([&] { return script_->num_idle >= 3; });
  add(1);
  script_->wait([&] { return !script_->steps.empty(); });
  const int before = script_->num_idle;
  script_->wait([&] { return script_->num_idle > before; });
  EXPECT_EQ(tracker().end(RunEnd::kFinished, kPatience).num_sent, 1);
}

}  // namespace
}  // namespace automodel::trackers

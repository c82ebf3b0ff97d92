#include "recipes/records/run_advice.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <limits>
#include <thread>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

/// Keeps lines with their level in front.
class KeptLines final : public Reporter {
 public:
  void info(std::string_view text) override { lines.push_back(cat("I ", text)); }
  void warning(std::string_view text) override { lines.push_back(cat("W ", text)); }
  void error(std::string_view text) override { lines.push_back(cat("E ", text)); }

  std::vector<std::string> lines;
};

TEST(RunAdviceTest, WhatIsFoundIsALineAndAnEvent) {
  const TemporaryDirectory folder;
  KeptLines console;
  loggers::RunEvents events(console, /*is_recording=*/true);
  events.open(folder.path(), /*begins_anew=*/true);
  RunAdvice advice(console, events, /*is_watching=*/true);
  const std::vector<moe::LayerLoad> loads = {{"layer 3", at::tensor({40.0F, 0.0F, 0.0F, 0.0F}), 0}};
  for (int64_t step = 0; step < 60; ++step) {
    advice.after_step({.step = step,
                       .loss = step == 40 ? 9 : 3 - 0.01 * static_cast<double>(step),
                       .grad_norm = 1.5,
                       .lr = 1e-3,
                       .seconds = 0.5,
                       .waited_seconds = 0.25});
    advice.after_routing(step, loads, 1);
  }
  EXPECT_THAT(console.lines,
              ElementsAre(StartsWith("W advice: steps wait for the data: 50 %"),
                          StartsWith("W advice: spike at step 40: loss 9.000"),
                          StartsWith("W advice: routing collapse in layer 3 at step 49: 3 of 4")));
  const std::vector<Json> told = test::read_records(folder.file("events.jsonl"));
  ASSERT_EQ(told.size(), 3U);
  EXPECT_EQ(told[1].at("event").as_string(), "advice");
  EXPECT_EQ(told[1].at("kind").as_string(), "spike");
  EXPECT_EQ(told[1].at("step").as_int(), 40);
  EXPECT_EQ(cat("W advice: ", told[1].at("text").as_string()), console.lines[1]);
}

TEST(RunAdviceTest, ADiskThatWillBeFullIsToldAfterASave) {
  const TemporaryDirectory folder;
  folder.write("epoch_0_step_9/model/weights", std::string(1 << 20, 'x'));
  folder.write("epoch_0_step_4/model/weights", "x");
  KeptLines console;
  loggers::RunEvents events(console, /*is_recording=*/true);
  RunAdvice advice(console, events, /*is_watching=*/true);
  const std::string checkpoint = folder.file("epoch_0_step_9");
  SaveSchedule plan{.max_steps = std::numeric_limits<int64_t>::max() / (int64_t{1} << 21)};
  advice.after_save(checkpoint, 9, {.max_steps = 20, .interval = 5});
  advice.finish();
  EXPECT_THAT(console.lines, IsEmpty());
  plan.most_kept = 3;
  advice.after_save(checkpoint, 9, plan);
  advice.finish();
  EXPECT_THAT(console.lines, IsEmpty());
  plan.most_kept.reset();
  advice.after_save(checkpoint, 9, plan);
  advice.finish();
  EXPECT_THAT(console.lines, ElementsAre(StartsWith(cat("W advice: the disk of ", folder.path(),
                                                        " will be full before the end: "))));
  RunAdvice of_other_rank(console, events, /*is_watching=*/false);
  of_other_rank.after_save(checkpoint, 9, plan);
  EXPECT_EQ(console.lines.size(), 1U);
}

TEST(RunAdviceTest, SavesToComeAreThoseOfStepsEpochsAndTheEnd) {
  EXPECT_EQ(num_saves_to_come({.max_steps = 20, .interval = 5}, 9, 2), 2);
  EXPECT_EQ(num_saves_to_come({.max_steps = 22, .interval = 5}, 9, 2), 3);
  EXPECT_EQ(num_saves_to_come({.max_steps = 22, .interval = 5}, 21, 5), 0);
  // 12, 14, 15, 16, 18, 20 and the last, 21
  EXPECT_EQ(num_saves_to_come({.max_steps = 21, .interval = 5, .epoch_length = 2}, 9, 2), 7);
  EXPECT_EQ(num_saves_to_come({.max_steps = 100, .interval = 5, .most_kept = 3}, 9, 2), 2);
  EXPECT_EQ(num_saves_to_come({.max_steps = 100, .interval = 5, .most_kept = 3}, 9, 3), 1);
  EXPECT_EQ(num_saves_to_come({.max_steps = 11, .interval = 5, .most_kept = 3}, 10, 3), 0);
}

/// Stops a process for two thirds of the time until it is destroyed.
class SlowedProcess final {
 public:
  explicit SlowedProcess(pid_t pid)
      : pid_(pid), thread_([this](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            ::kill(pid_, SIGSTOP);
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            ::kill(pid_, SIGCONT);
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
        }) {}

 private:
  pid_t pid_;
  std::jthread thread_;
};

/// The texts of a run's advice of a kind so far.
std::vector<std::string> advice_of(const std::string& folder, const std::string& kind) {
  std::vector<std::string> texts;
  for (const Json& event : test::read_records(path_join(folder, "events.jsonl"))) {
    if (event.get("kind", "") == kind) texts.push_back(event.at("text").as_string());
  }
  return texts;
}

TEST(RunAdviceTest, ARankThatIsSlowedDownIsNamedAsAStraggler) {
  const TemporaryDirectory folder;
  test::Program program(test::on(
      {2, {}},
      {test::automodel_binary(), "run", test::source_file("recipes/smoke/mock_pretrain.yaml"),
       "--step_scheduler.max_steps=1000000", "--step_scheduler.num_epochs=1000000",
       cat("--checkpoint.checkpoint_dir=", folder.path())}));
  test::wait_for_records(folder.file("training.jsonl"));
  const std::vector<pid_t> ranks = test::children_of(program.pid());
  ASSERT_EQ(ranks.size(), 2U);
  std::vector<std::string> texts;
  {
    const SlowedProcess slowed(ranks[1]);
    const double deadline = monotonic_seconds() + 60;
    while (texts.empty() && monotonic_seconds() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      texts = advice_of(folder.path(), "straggler");
    }
  }
  ::kill(program.pid(), SIGTERM);
  const test::ProgramResult result = program.wait();
  EXPECT_EQ(result.status, 75) << result.err;
  ASSERT_EQ(texts.size(), 1U) << result.err;
  EXPECT_THAT(texts[0], StartsWith("rank 1 holds the others up (step "));
  EXPECT_THAT(result.err, testing::HasSubstr(cat("advice: ", texts[0])));
}

}  // namespace
}  // namespace automodel::recipes

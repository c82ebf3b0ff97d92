// Ranks of a recipe that stop or die, as processes: in training and while a checkpoint is written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "recipes/saving_runs.h"

namespace automodel::recipes {
namespace {

using test::Program;
using test::ProgramResult;
using test::TemporaryDirectory;

struct FailureSpread {
  const char* name;
  test::Spread spread;
};

std::vector<FailureSpread> failure_spreads() {
  return {{"Tp2Fsdp2", test::sharded(4, {"--distributed.tp_size=2"})},
          {"Tp2Sp",
           test::sharded(2, {"--distributed.tp_size=2", "--distributed.sequence_parallel=true"})},
          {"Hsdp", test::sharded(4, {"--distributed.dp_replicate_size=2",
                                     "--step_scheduler.local_batch_size=1"})}};
}

class RecipeFailureTest : public testing::TestWithParam<FailureSpread> {};

/// A run without an end and without checkpoints whose ranks have trained a step.
std::unique_ptr<Program> endless_run(const TemporaryDirectory& folder, const test::Spread& spread,
                                     double timeout_minutes) {
  auto program = std::make_unique<Program>(test::on(
      spread, test::smoke_run(folder.file("run"),
                              {"--step_scheduler.max_steps=1000000",
                               "--step_scheduler.num_epochs=1000000", "--checkpoint.enabled=false",
                               cat("--dist_env.timeout_minutes=", timeout_minutes)})));
  test::wait_for_records(folder.file("run/training.jsonl"));
  return program;
}

TEST_P(RecipeFailureTest, AStoppedRankIsNamedByTheOthersAfterTheTimeout) {
  const TemporaryDirectory folder;
  const auto program = endless_run(folder, GetParam().spread, 0.1);
  const std::vector<pid_t> ranks = test::children_of(program->pid());
  ASSERT_EQ(ranks.size(), static_cast<size_t>(GetParam().spread.num_ranks));
  ::kill(ranks[1], SIGSTOP);
  const ProgramResult run = program->wait();
  EXPECT_EQ(run.status, 4) << run.err;
  EXPECT_THAT(run.err, testing::HasSubstr("rank 1 vanished during "));
  EXPECT_THAT(run.err, testing::HasSubstr("no sign of life for "));
}

TEST_P(RecipeFailureTest, AKilledRankIsNamedLongBeforeTheTimeout) {
  const TemporaryDirectory folder;
  const auto program = endless_run(folder, GetParam().spread, 10);
  const std::vector<pid_t> ranks = test::children_of(program->pid());
  ASSERT_EQ(ranks.size(), static_cast<size_t>(GetParam().spread.num_ranks));
  const double begin = monotonic_seconds();
  ::kill(ranks[1], SIGKILL);
  const ProgramResult run = program->wait();
  EXPECT_LT(monotonic_seconds() - begin, 120.0);
  EXPECT_EQ(run.status, 128 + SIGKILL) << run.err;
  EXPECT_THAT(run.err, testing::HasSubstr(
                           cat("rank 1 (pid ", ranks[1], ") was killed by signal 9 (Killed)")));
}

/// Twelve steps that save after every one.
std::vector<std::string> saving_run(const std::string& folder, const test::Spread& spread) {
  return test::on(spread, test::smoke_run(folder, {"--step_scheduler.max_steps=12",
                                                   "--step_scheduler.num_epochs=10",
                                                   "--step_scheduler.ckpt_every_steps=1",
                                                   "--checkpoint.max_recent_checkpoints=2"}));
}

std::vector<std::string> losses_of(const std::string& folder) {
  std::vector<std::string> losses;
  for (const Json& record : test::read_records(path_join(folder, "training.jsonl"))) {
    losses.push_back(cat(record.at("step").as_int(), ": ", record.at("loss").as_double()));
  }
  return losses;
}

TEST_P(RecipeFailureTest, KilledWhileSavingItContinuesFromTheCheckpointBefore) {
  const TemporaryDirectory folder;
  const test::Spread& spread = GetParam().spread;
  const std::string whole = folder.file("whole");
  const test::FailingCalls counted{.folder = whole, .log = folder.file("whole.log")};
  ASSERT_EQ(test::run_program(saving_run(whole, spread), counted.environment()).status, 0);
  const std::vector<std::string> wanted = losses_of(whole);
  ASSERT_EQ(wanted.size(), 12U);
  const std::vector<test::CountedCall> calls = test::read_calls(counted.log);
  for (int rank = 0; rank < spread.num_ranks; ++rank) {
    const std::string place = folder.file(cat("run", rank));
    // Every rank writes this file in every save; this is the fifth.
    const auto moments =
        test::numbers_of(calls, rank, "rename", cat("rng_global_rank_", rank, ".json"));
    ASSERT_EQ(moments.size(), 12U);
    const test::FailingCalls failing{
        .folder = place, .rank = rank, .at = moments[4], .action = "kill"};
    const ProgramResult killed =
        test::run_program(saving_run(place, spread), failing.environment());
    EXPECT_EQ(killed.status, 128 + SIGKILL) << killed.err;
    EXPECT_THAT(test::checkpoints_in(place, false), testing::SizeIs(1));
    const ProgramResult run = test::run_program(saving_run(place, spread));
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.out, testing::HasSubstr("resumed from "));
    EXPECT_EQ(losses_of(place), wanted);
    EXPECT_THAT(test::checkpoints_in(place, false), testing::IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Spreads, RecipeFailureTest, testing::ValuesIn(failure_spreads()),
                         [](const testing::TestParamInfo<FailureSpread>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace automodel::recipes

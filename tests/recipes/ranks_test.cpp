#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>

#include "core/clock.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::expect_equal_records;
using test::Program;
using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;

std::vector<Json> records_of(const test::Spread& spread, const std::string& folder) {
  const ProgramResult run = test::run_program(test::on(
      spread,
      test::smoke_run(folder, {"--checkpoint.enabled=false",
                               "--dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl",
                               "--step_scheduler.global_batch_size=16",
                               "--step_scheduler.local_batch_size=2"})));
  EXPECT_EQ(run.status, 0) << run.err;
  return read_records(path_join(folder, "training.jsonl"));
}

/// Six steps of several micro-batches on any spread give the numbers of one process.
TEST(RanksTest, LossesDoNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = records_of({1, {}}, folder.file("one"));
  ASSERT_EQ(one.size(), 6u);
  const std::vector<std::pair<const char*, test::Spread>> spreads = {
      {"ddp on 2", {2, {}}},
      {"ddp on 4", {4, {}}},
      {"fsdp2 on 2", test::sharded(2)},
      {"fsdp2 on 4", test::sharded(4)},
      {"fsdp2 on 3 of uneven ranges", test::sharded(3, {"--step_scheduler.global_batch_size=18"})},
      {"fsdp2, parameters kept after forward",
       test::sharded(2, {"--distributed.reshard_after_forward=false"})},
      {"fsdp2, also the last block given up",
       test::sharded(2, {"--distributed.reshard_after_forward=true"})},
      {"hsdp on 2 x 2", test::sharded(4, {"--distributed.dp_replicate_size=2"})},
      {"megatron_fsdp on 2", {2, {"--distributed.strategy=megatron_fsdp"}}},
      {"megatron_fsdp on 4 without sharding",
       {4, {"--distributed.strategy=megatron_fsdp", "--distributed.zero_dp_strategy=0"}}},
      {"megatron_fsdp on 2 at ZeRO 1",
       {2, {"--distributed.strategy=megatron_fsdp", "--distributed.zero_dp_strategy=1"}}},
      {"megatron_fsdp on 4 at ZeRO 2",
       {4, {"--distributed.strategy=megatron_fsdp", "--distributed.zero_dp_strategy=2"}}},
      {"megatron_fsdp at ZeRO 0 with masters",
       {2,
        {"--distributed.strategy=megatron_fsdp", "--distributed.zero_dp_strategy=0",
         "--distributed.preserve_fp32_weights=true"}}},
      {"megatron_fsdp averaging in the collective",
       {2, {"--distributed.strategy=megatron_fsdp", "--distributed.average_in_collective=true"}}},
      {"fsdp2 that offloads", test::sharded(2, {"--distributed.offload_policy.pin_memory=true"})},
      {"fsdp2 that prefetches", test::sharded(2, {"--distributed.enable_fsdp2_prefetch=true"})},
      {"activation checkpointing", {1, {"--distributed.activation_checkpointing=true"}}},
      {"activation checkpointing under ddp", {2, {"--distributed.activation_checkpointing=full"}}},
      {"activation checkpointing under fsdp2",
       test::sharded(2, {"--distributed.activation_checkpointing=true"})},
      {"selective activation checkpointing under ddp",
       {2, {"--distributed.activation_checkpointing=selective"}}},
      {"selective activation checkpointing under fsdp2",
       test::sharded(2, {"--distributed.activation_checkpointing=selective",
                         "--distributed.activation_checkpointing_scope=language"})},
      {"fsdp2, reduced after every micro-batch",
       test::sharded(2, {"--distributed.defer_fsdp_grad_sync=false"})},
      {"tp2", {2, {"--distributed.strategy=fsdp2", "--distributed.tp_size=2"}}},
      {"tp2 x fsdp2 on 4", test::sharded(4, {"--distributed.tp_size=2"})},
      {"tp2 with split sequences",
       test::sharded(2, {"--distributed.tp_size=2", "--distributed.sequence_parallel=true"})},
      {"tp2 x fsdp2 on 4 with split sequences and activation checkpointing",
       test::sharded(4, {"--distributed.tp_size=2", "--distributed.sequence_parallel=true",
                         "--distributed.activation_checkpointing=true"})},
      {"tp2 with activation checkpointing",
       test::sharded(2,
                     {"--distributed.tp_size=2", "--distributed.activation_checkpointing=true"})},
      {"megatron_fsdp x tp2 on 4",
       {4, {"--distributed.strategy=megatron_fsdp", "--distributed.tp_size=2"}}},
      {"megatron_fsdp without sharding x tp2 on 4",
       {4,
        {"--distributed.strategy=megatron_fsdp", "--distributed.zero_dp_strategy=0",
         "--distributed.tp_size=2"}}}};
  for (const auto& [name, spread] : spreads) {
    SCOPED_TRACE(name);
    const std::vector<Json> records = records_of(spread, folder.file(name));
    if (spread.num_ranks == 3) {
      const std::vector<Json> same_batch =
          records_of({1, {"--step_scheduler.global_batch_size=18"}}, folder.file("18"));
      expect_equal_records(same_batch, records, 2e-6);
    } else {
      expect_equal_records(one, records, 2e-6);
    }
  }
}

TEST(RanksTest, ShardingComputesInBfloat16ByDefaultAsUpstream) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = records_of({1, {}}, folder.file("one"));
  const std::vector<Json> two =
      records_of({2, {"--distributed.strategy=fsdp2"}}, folder.file("two"));
  const std::vector<Json> stored =
      records_of({1, {"--model.torch_dtype=bfloat16"}}, folder.file("stored"));
  test::expect_rounded_as_peer(one, two, stored);
  expect_equal_records(one, two, 0, {.numbers = {"lr"}});
}

TEST(RanksTest, AKilledRankEndsTheRunAndIsNamed) {
  const TemporaryDirectory folder;
  Program program(test::smoke_run(
      folder.file("run"), {"--nproc-per-node=2", "--step_scheduler.max_steps=1000000",
                           "--step_scheduler.num_epochs=1000000", "--checkpoint.enabled=false",
                           "--dist_env.timeout_minutes=10"}));
  test::wait_for_records(folder.file("run/training.jsonl"));
  const std::vector<pid_t> ranks = test::children_of(program.pid());
  ASSERT_EQ(ranks.size(), 2u);
  const double begin = monotonic_seconds();
  ::kill(ranks[1], SIGKILL);
  const ProgramResult run = program.wait();
  EXPECT_LT(monotonic_seconds() - begin, 120.0);  // no timeout ended it
  EXPECT_EQ(run.status, 128 + SIGKILL);
  EXPECT_NE(run.err.find(cat("rank 1 (pid ", ranks[1], ") was killed by signal 9 (Killed)")),
            std::string::npos)
      << run.err;
}

TEST(RanksTest, TheTextOfAFailingRankIsToldOnce) {
  const TemporaryDirectory folder;
  const std::string weights = test::source_file("tests/recipes/data/tiny_llama");
  const std::string rows = folder.write("rows.jsonl", "{\"question\": \"a\"}\n");
  const ProgramResult run = test::run_program(
      test::smoke_run(folder.file("run"), {"--nproc-per-node=2", "--checkpoint.enabled=false",
                                           cat("--dataset.path_or_dataset_id=", rows)}));
  EXPECT_EQ(run.status, 2);
  const std::string text = "no column 'answer'; columns: question";
  const size_t first = run.err.find(text);
  EXPECT_NE(first, std::string::npos) << run.err;
  EXPECT_EQ(run.err.find(text, first + 1), std::string::npos) << run.err;
}

TEST(RanksTest, OtherOverridesOnOneRankAreRefused) {
  const TemporaryDirectory folder;
  const auto start = [&](int rank, const char* lr) {
    // The port is the kernel's choice for this test's process id range: torchrun gives one.
    return std::make_unique<Program>(
        test::smoke_run(folder.file("run"), {"--checkpoint.enabled=false", lr}),
        std::vector<std::string>{cat("RANK=", rank), "WORLD_SIZE=2", cat("LOCAL_RANK=", rank),
                                 "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                 cat("MASTER_PORT=", 20000 + ::getpid() % 20000)});
  };
  const auto first = start(0, "--optimizer.lr=1e-3");
  const auto second = start(1, "--optimizer.lr=2e-3");
  const ProgramResult a = first->wait(), b = second->wait();
  EXPECT_EQ(a.status, 2);
  EXPECT_EQ(b.status, 2);
  EXPECT_NE(a.err.find("rank 1 has another recipe or overrides than rank 0"), std::string::npos)
      << a.err;
}

}  // namespace
}  // namespace automodel::recipes

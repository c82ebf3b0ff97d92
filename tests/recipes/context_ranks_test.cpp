#include <gtest/gtest.h>

#include <cmath>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::sharded;
using test::Spread;
using test::TemporaryDirectory;

/// A run with a validation set; sequences of many lengths, most of which 2 cp does not divide.
std::vector<std::string> context_run(const std::string& folder,
                                     const std::vector<std::string>& more = {}) {
  std::vector<std::string> options = {"--dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl",
                                      "--step_scheduler.global_batch_size=8",
                                      "--step_scheduler.local_batch_size=2"};
  options.insert(options.end(), more.begin(), more.end());
  return test::smoke_run(folder, options);
}

/// The recipe's file with a validation set behind it, of four rows: every rank has as many.
std::string recipe_with_validation(const TemporaryDirectory& folder) {
  const std::string text = read_file(test::source_file("recipes/smoke/tiny_llama_sft.yaml"));
  const std::string key = "\ndataset:\n";
  const size_t begin = text.find(key) + key.size();
  const std::string section = text.substr(begin, text.find("\n\n", begin) - begin);
  const std::string rows_path = "tests/recipes/data/rows.jsonl";
  const auto rows = split(read_file(test::source_file(rows_path)), '\n');
  const std::string file =
      folder.write("validation.jsonl", cat(rows[0], "\n", rows[1], "\n", rows[2], "\n", rows[3]));
  return folder.write("recipe.yaml", cat(text, "\nvalidation_dataset:\n",
                                         replace_all(section, rows_path, file), "\n"));
}

struct ContextRecords {
  std::vector<Json> training, validation;
};

ContextRecords run_spread(const Spread& spread, const std::string& recipe,
                          const std::string& folder) {
  std::vector<std::string> arguments = test::on(
      spread,
      context_run(folder, {"--checkpoint.enabled=false", "--step_scheduler.val_every_steps=3"}));
  arguments[2] = recipe;
  const ProgramResult run = test::run_program(arguments);
  EXPECT_EQ(run.status, 0) << run.err;
  return {test::read_records(path_join(folder, "training.jsonl")),
          test::read_records(path_join(folder, "validation.jsonl"))};
}

void expect_near(const Json& found, const Json& wanted, const char* key) {
  const double value = wanted.at(key).as_double();
  EXPECT_NEAR(found.at(key).as_double(), value, 2e-6 * std::abs(value)) << key;
}

void expect_as_one_process(const ContextRecords& one, const ContextRecords& found) {
  ASSERT_EQ(found.training.size(), one.training.size());
  for (size_t i = 0; i < one.training.size(); ++i) {
    SCOPED_TRACE(cat("step ", i));
    expect_near(found.training[i], one.training[i], "loss");
    expect_near(found.training[i], one.training[i], "grad_norm");
    for (const char* key : {"num_tokens_per_step", "num_label_tokens"}) {
      EXPECT_EQ(found.training[i].at(key).as_int(), one.training[i].at(key).as_int()) << key;
    }
  }
  ASSERT_EQ(found.validation.size(), one.validation.size());
  for (size_t i = 0; i < one.validation.size(); ++i) {
    expect_near(found.validation[i], one.validation[i], "val_loss");
  }
}

TEST(ContextRanksTest, LossesAreThoseOfOneProcess) {
  const TemporaryDirectory folder;
  const std::string recipe = recipe_with_validation(folder);
  const ContextRecords one = run_spread({1, {}}, recipe, folder.file("one"));
  ASSERT_EQ(one.training.size(), 6u);
  ASSERT_GE(one.validation.size(), 2u);
  const std::string cp2 = "--distributed.cp_size=2";
  const std::string ring = "--distributed.cp_rotate_method=alltoall";
  const std::string megatron = "--distributed.strategy=megatron_fsdp";
  const std::vector<std::pair<const char*, Spread>> spreads = {
      {"cp2", sharded(2, {cp2})},
      {"cp2 in a ring", sharded(2, {cp2, ring})},
      {"cp4", sharded(4, {"--distributed.cp_size=4"})},
      {"cp2 x fsdp2 on 4", sharded(4, {cp2})},
      {"cp2 x hsdp on 8", sharded(8, {cp2, "--distributed.dp_replicate_size=2",
                                      "--step_scheduler.local_batch_size=1"})},
      {"cp2 x tp2 on 4", sharded(4, {cp2, "--distributed.tp_size=2"})},
      {"cp2 x tp2 with split sequences and activation checkpointing",
       sharded(4, {cp2, ring, "--distributed.tp_size=2", "--distributed.sequence_parallel=true",
                   "--distributed.activation_checkpointing=true"})},
      {"cp2 with selective activation checkpointing, prefetching",
       sharded(2, {cp2, "--distributed.activation_checkpointing=selective",
                   "--distributed.enable_fsdp2_prefetch=true"})},
      {"cp2, reduced after every micro-batch",
       sharded(2, {cp2, ring, "--distributed.defer_fsdp_grad_sync=false"})},
      {"megatron_fsdp cp2", {2, {megatron, cp2}}},
      {"megatron_fsdp cp2 at ZeRO 1 on 4",
       {4, {megatron, cp2, "--distributed.zero_dp_strategy=1"}}},
      {"megatron_fsdp cp2 without sharding",
       {2, {megatron, cp2, "--distributed.zero_dp_strategy=0"}}}};
  for (const auto& [name, spread] : spreads) {
    SCOPED_TRACE(name);
    expect_as_one_process(one, run_spread(spread, recipe, folder.file(name)));
  }
}

/// Three steps on one spread, then three on another, are six on one process.
TEST(ContextRanksTest, ARunGoesOnWithAnotherContextSize) {
  const TemporaryDirectory folder;
  const ProgramResult whole = test::run_program(context_run(folder.file("whole")));
  ASSERT_EQ(whole.status, 0) << whole.err;
  const std::vector<Json> wanted = test::read_records(folder.file("whole/training.jsonl"));
  const Spread one{1, {}};
  const Spread two = sharded(2, {"--distributed.cp_size=2"});
  const Spread four = sharded(4, {"--distributed.cp_size=4"});
  for (const auto& [first, second] : {std::pair{two, one}, {one, four}, {four, two}}) {
    const std::string run = folder.file(cat(first.num_ranks, "-", second.num_ranks));
    const auto begun =
        test::run_program(test::on(first, context_run(run, {"--step_scheduler.max_steps=3"})));
    ASSERT_EQ(begun.status, 0) << begun.err;
    const auto resumed = test::run_program(test::on(second, context_run(run)));
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    const std::vector<Json> found = test::read_records(path_join(run, "training.jsonl"));
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) expect_near(found[i], wanted[i], "loss");
  }
}

}  // namespace
}  // namespace automodel::recipes

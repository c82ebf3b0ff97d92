// Runs of bitsandbytes' 8-bit optimizers on a tiny Llama, all of whose tensors have 8-bit state.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/safetensors.h"
#include "recipes/optimizer_runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;

constexpr const char* kAll = "--optimizer.min_8bit_size=0";

/// Matrices are of whole blocks.
const test::OptimizerRuns& runs() {
  static const test::OptimizerRuns kRuns("bitsandbytes.optim.AdamW8bit", {kAll});
  return kRuns;
}

const std::vector<std::pair<const char*, test::Spread>>& spreads() {
  static const std::vector<std::pair<const char*, test::Spread>> kSpreads = {
      {"ddp on 2", {2, {}}},
      {"fsdp2 on 2", test::sharded(2)},
      {"fsdp2 on 4", test::sharded(4)},
      {"hsdp on 2 x 2", test::sharded(4, {"--distributed.dp_replicate_size=2"})},
      {"megatron_fsdp on 2", {2, {"--distributed.strategy=megatron_fsdp"}}},
      {"megatron_fsdp on 2 at ZeRO 1",
       {2, {"--distributed.strategy=megatron_fsdp", "--distributed.zero_dp_strategy=1"}}}};
  return kSpreads;
}

TEST(Adam8bitRuns, LossesDoNotDependOnTheSpread) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = runs().records_on({1, {}}, folder.file("one"));
  ASSERT_EQ(one.size(), 6u);
  for (const auto& [name, spread] : spreads()) {
    SCOPED_TRACE(name);
    test::expect_equal_records(one, runs().records_on(spread, folder.file(name)),
                               test::kOtherOrder);
  }
  // What 8 bits lose is more than that.
  const std::vector<Json> wide =
      runs().records_on({1, {}}, folder.file("wide"), {"--optimizer.min_8bit_size=1000000"});
  EXPECT_GT(test::summed_distance(one, wide, "grad_norm"), 10 * test::kOtherOrder);
}

/// A row-parallel weight's columns are cut within blocks, so these have factors of their own.
TEST(Adam8bitRuns, TensorParallelRanksAreAsFarFromFloat32AsOneRank) {
  const TemporaryDirectory folder;
  const std::vector<std::string> wide = {"--optimizer.min_8bit_size=1000000"};
  const std::vector<Json> exact = runs().records_on({1, {}}, folder.file("exact"), wide);
  const std::vector<Json> one = runs().records_on({1, {}}, folder.file("one"));
  const std::vector<Json> split =
      runs().records_on(test::sharded(4, {"--distributed.tp_size=2"}), folder.file("split"));
  for (const char* key : {"loss", "grad_norm"}) {
    EXPECT_LE(test::summed_distance(exact, split, key), 2 * test::summed_distance(exact, one, key))
        << key;
  }
  EXPECT_GT(test::summed_distance(one, split, "grad_norm"), 1e-6);
}

TEST(Adam8bitRuns, ContinueBitForBitOnTheSameRanksAndOnOthersToo) {
  const TemporaryDirectory folder;
  std::vector<std::pair<const char*, test::Spread>> all = {{"one", {1, {}}}};
  for (const size_t i : {0, 1, 2}) all.push_back(spreads()[i]);
  for (const auto& [from, saved] : all) {
    const std::vector<Json> wanted = runs().records_on(saved, folder.file(from));
    ASSERT_EQ(wanted.size(), 6u);
    const std::vector<Json> rest(wanted.begin() + 3, wanted.end());
    for (const auto& [to, loaded] : all) {
      SCOPED_TRACE(cat(from, " to ", to));
      const std::string place = folder.file(cat(from, " to ", to));
      const std::vector<Json> found = runs().records_on(
          loaded, place, {cat("--checkpoint.restore_from=", folder.file(from), "/epoch_0_step_2")});
      test::expect_equal_records(rest, found, std::string(from) == to ? 0 : test::kOtherOrder);
    }
  }
}

TEST(Adam8bitRuns, AnotherWayOfCuttingBlocksIsRefused) {
  const TemporaryDirectory folder;
  const test::Spread split = test::sharded(2, {"--distributed.tp_size=2"});
  ASSERT_EQ(runs().run_on(split, folder.file("split")).status, 0);
  const std::string restored =
      cat("--checkpoint.restore_from=", folder.file("split"), "/epoch_0_step_2");
  const ProgramResult again = runs().run_on(split, folder.file("again"), {restored});
  EXPECT_EQ(again.status, 0) << again.err;
  const ProgramResult whole = runs().run_on({1, {}}, folder.file("whole"), {restored});
  EXPECT_EQ(whole.status, 3);
  EXPECT_NE(whole.err.find("/optim does not fit this model:\n  of another shape ("),
            std::string::npos)
      << whole.err;
  EXPECT_NE(whole.err.find("exp_avg_absmax."), std::string::npos) << whole.err;
  EXPECT_NE(whole.err.find("with the tp_size that they were saved with"), std::string::npos);
}

/// The up projections of this model's fused matrices begin within a block.
TEST(Adam8bitRuns, ABorderOfRanksWithinABlockIsRefused) {
  const TemporaryDirectory folder;
  const ProgramResult run = test::run_program(test::on(
      test::sharded(4),
      test::smoke_run(folder.file("run"),
                      {runs().options()[0], kAll, "--step_scheduler.local_batch_size=1"})));
  EXPECT_EQ(run.status, 2);
  // The first rank that finds one says so.
  EXPECT_NE(run.err.find("the optimizer keeps averages in 8 bits by blocks of 256 elements, and a "
                         "border between data-parallel ranks (elements "),
            std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find(" of 640) cuts a block of model.layers.0.mlp.up_proj.weight: take the "
                         "strategy ddp, another number of ranks, or an optimizer without 8 bits"),
            std::string::npos)
      << run.err;
}

TEST(Adam8bitRuns, StateOfAnotherOptimizerIsRefused) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::string& optimizer, const std::string& place,
                       const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {cat("--optimizer._target_=", optimizer)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return test::run_program(test::smoke_run(folder.file(place), arguments));
  };
  const std::string narrow = "bitsandbytes.optim.AdamW8bit", wide = "torch.optim.AdamW";
  ASSERT_EQ(run(narrow, "narrow", {kAll}).status, 0);
  ASSERT_EQ(run(wide, "wide", {}).status, 0);
  const auto restored = [&](const char* from) {
    return cat("--checkpoint.restore_from=", folder.file(from), "/epoch_0_step_2");
  };
  const ProgramResult narrowed = run(narrow, "narrowed", {kAll, restored("wide")});
  EXPECT_EQ(narrowed.status, 3);
  EXPECT_NE(narrowed.err.find("exp_avg_8bit."), std::string::npos) << narrowed.err;
  const ProgramResult widened = run(wide, "widened", {restored("narrow")});
  EXPECT_EQ(widened.status, 3);
  EXPECT_NE(widened.err.find("missing ("), std::string::npos) << widened.err;
}

/// Bytes of the tensors in a rank's file of the last save.
int64_t saved_bytes(const std::string& folder, int rank) {
  const checkpoint::SafetensorsFile file(
      cat(folder, "/LATEST/optim/shard-0000", rank + 1, "-optim-00001-of-00001.safetensors"));
  int64_t bytes = 0;
  for (const checkpoint::TensorEntry& entry : file.tensors()) {
    bytes += entry.numel() * static_cast<int64_t>(c10::elementSize(entry.dtype));
  }
  return bytes;
}

TEST(Adam8bitRuns, APlanCountsTheStateThatIsSaved) {
  const TemporaryDirectory folder;
  for (const std::string least : {"0", "4096"}) {
    for (const size_t i : {0, 1, 3}) {
      const auto& [name, spread] = spreads()[i];
      SCOPED_TRACE(cat(name, ", from ", least));
      const std::string size = cat("--optimizer.min_8bit_size=", least);
      const std::string place = folder.file(cat(name, least));
      runs().records_on(spread, place, {size});
      std::vector<std::string> arguments = {test::automodel_binary(), "plan",
                                            test::source_file("recipes/smoke/tiny_llama_sft.yaml"),
                                            "--json", cat("--world-size=", spread.num_ranks)};
      arguments.insert(arguments.end(), runs().options().begin(), runs().options().end());
      arguments.push_back(size);
      arguments.insert(arguments.end(), spread.options.begin(), spread.options.end());
      const ProgramResult plan = test::run_program(arguments);
      ASSERT_EQ(plan.status, 0) << plan.err;
      const int64_t planned = Json::parse(plan.out, "plan").at("bytes").at("optimizer").as_int();
      const bool is_whole = spread.options.empty();
      const bool is_replicated = spread.num_ranks == 4 && spread.options.size() > 3;
      const int num_files = is_whole ? 1 : is_replicated ? 2 : spread.num_ranks;
      int64_t most = 0;
      for (int rank = 0; rank < num_files; ++rank) {
        most = std::max(most, saved_bytes(place, rank));
      }
      // Each unit is planned as its fullest rank has it.
      EXPECT_GE(planned, most);
      EXPECT_LE(planned, is_whole ? most : most + most / 20);
    }
  }
}

TEST(Adam8bitRuns, PagedAveragesAreToldOf) {
  const TemporaryDirectory folder;
  const ProgramResult plain = runs().run_on({1, {}}, folder.file("plain"));
  const ProgramResult paged = runs().run_on(
      {1, {}}, folder.file("paged"), {"--optimizer._target_=bitsandbytes.optim.PagedAdamW8bit"});
  ASSERT_EQ(paged.status, 0) << paged.err;
  EXPECT_NE(paged.err.find("a CPU pages no optimizer state: it lies in memory as without paging, "
                           "with the same numbers; a run on a CUDA device is refused"),
            std::string::npos)
      << paged.err;
  test::expect_equal_records(read_records(folder.file("plain/training.jsonl")),
                             read_records(folder.file("paged/training.jsonl")), 0);
}

}  // namespace
}  // namespace automodel::recipes

// Runs of FlashAdamW on a tiny Llama.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/safetensors.h"
#include "recipes/optimizer_runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;

constexpr const char* kNarrow = "--model.torch_dtype=bfloat16";

/// A rank's columns of a layer that tensor parallelism cuts are whole groups.
const test::OptimizerRuns& runs() {
  static const test::OptimizerRuns kRuns("flashoptim.FlashAdamW",
                                         {"--model.intermediate_size=128"});
  return kRuns;
}

const std::vector<std::pair<const char*, test::Spread>>& spreads() {
  static const std::vector<std::pair<const char*, test::Spread>> kSpreads = {
      {"ddp on 2", {2, {}}},
      {"fsdp2 on 2", test::sharded(2)},
      {"tensor parallel on 2", test::sharded(2, {"--distributed.tp_size=2"})},
      {"megatron_fsdp on 2", {2, {"--distributed.strategy=megatron_fsdp"}}},
      // A quarter of the root unit would end within a group.
      {"fsdp2 on 4", test::sharded(4)}};
  return kSpreads;
}

TEST(FlashAdamWRuns, LossesDoNotDependOnTheSpread) {
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
      runs().records_on({1, {}}, folder.file("wide"), {"--optimizer.quantize=false"});
  EXPECT_GT(test::summed_distance(one, wide, "grad_norm"), 10 * test::kOtherOrder);
}

TEST(FlashAdamWRuns, ContinueBitForBitOnTheSameRanksAndOnOthersToo) {
  const TemporaryDirectory folder;
  std::vector<std::pair<const char*, test::Spread>> all = {{"one", {1, {}}}};
  for (const size_t i : {1, 2}) all.push_back(spreads()[i]);
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

/// The bits of a weight that its parameter lacks are kept too.
TEST(FlashAdamWRuns, ContinueBitForBitInBfloat16) {
  const TemporaryDirectory folder;
  const test::Spread two = {2, {"--distributed.strategy=fsdp2"}};
  for (const std::string bits : {"24", "32"}) {
    const std::vector<std::string> more = {kNarrow, "--optimizer.master_weight_bits=" + bits};
    const std::vector<Json> wanted = runs().records_on(two, folder.file(bits), more);
    ASSERT_EQ(wanted.size(), 6u);
    std::vector<std::string> restored = more;
    restored.push_back(cat("--checkpoint.restore_from=", folder.file(bits), "/epoch_0_step_2"));
    test::expect_equal_records({wanted.begin() + 3, wanted.end()},
                               runs().records_on(two, folder.file("from " + bits), restored), 0);
  }
}

TEST(FlashAdamWRuns, StateOfAnotherKindIsRefused) {
  const TemporaryDirectory folder;
  const std::string target = "--optimizer._target_=";
  ASSERT_EQ(runs().run_on({1, {}}, folder.file("flash"), {kNarrow}).status, 0);
  ASSERT_EQ(
      runs().run_on({1, {}}, folder.file("torch"), {kNarrow, target + "torch.optim.AdamW"}).status,
      0);
  const auto restored = [&](const char* from) {
    return cat("--checkpoint.restore_from=", folder.file(from), "/epoch_0_step_2");
  };
  const auto refusal = [&](const std::string& place, std::vector<std::string> more) {
    more.emplace_back(kNarrow);
    const ProgramResult run = runs().run_on({1, {}}, folder.file(place), more);
    EXPECT_EQ(run.status, 3) << run.err;
    return run.err;
  };
  for (const char* quantize : {"true", "false"}) {
    const std::string text = refusal(cat("to flash ", quantize),
                                     {cat("--optimizer.quantize=", quantize), restored("torch")});
    EXPECT_NE(text.find("missing ("), std::string::npos) << text;
    EXPECT_NE(text.find("flash_exp_avg"), std::string::npos) << text;
  }
  const std::string wider =
      refusal("wider", {"--optimizer.master_weight_bits=32", restored("flash")});
  EXPECT_NE(wider.find("flash_corrections_int16."), std::string::npos) << wider;
  const std::string torch = refusal("to torch", {target + "torch.optim.AdamW", restored("flash")});
  EXPECT_NE(torch.find("exp_avg."), std::string::npos) << torch;
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

TEST(FlashAdamWRuns, APlanCountsTheStateThatIsSaved) {
  const TemporaryDirectory folder;
  for (const std::string bits : {"24", "32", "none"}) {
    for (const int num_ranks : {1, 2}) {
      SCOPED_TRACE(cat(bits, " bits on ", num_ranks));
      const test::Spread spread = {num_ranks, {"--distributed.strategy=fsdp2"}};
      const std::vector<std::string> more = {kNarrow, "--optimizer.master_weight_bits=" + bits};
      const std::string place = folder.file(cat(bits, num_ranks));
      runs().records_on(spread, place, more);
      std::vector<std::string> arguments = {test::automodel_binary(), "plan",
                                            test::source_file("recipes/smoke/tiny_llama_sft.yaml"),
                                            "--json", cat("--world-size=", num_ranks)};
      for (const auto& part : {runs().options(), more, spread.options}) {
        arguments.insert(arguments.end(), part.begin(), part.end());
      }
      const ProgramResult plan = test::run_program(arguments);
      ASSERT_EQ(plan.status, 0) << plan.err;
      const int64_t planned = Json::parse(plan.out, "plan").at("bytes").at("optimizer").as_int();
      int64_t most = 0;
      for (int rank = 0; rank < num_ranks; ++rank) {
        most = std::max(most, saved_bytes(place, rank));
      }
      // Each unit is planned as its fullest rank has it.
      EXPECT_GE(planned, most);
      EXPECT_LE(planned, num_ranks == 1 ? most : most + most / 20);
    }
  }
}

/// A rank's part may hold smaller weights than the tensor: the rank with the largest one says so.
TEST(FlashAdamWRuns, StopWhereARateIsTooSmallForAWeight) {
  const TemporaryDirectory folder;
  for (const int num_ranks : {1, 2}) {
    const ProgramResult run =
        runs().run_on({num_ranks, {"--distributed.strategy=fsdp2"}}, folder.file(cat(num_ranks)),
                      {kNarrow, "--optimizer.check_numerics=true", "--optimizer.lr=1e-7"});
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_NE(run.err.find("optimizer.check_numerics: the learning rate "), std::string::npos)
        << run.err;
  }
}

}  // namespace
}  // namespace automodel::recipes

// Runs by a mixed-precision policy, and under autocast, as processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/file.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::read_records;
using test::Spread;
using test::TemporaryDirectory;

using Options = std::vector<std::string>;

/// Three steps of an untied Llama of eight layers, four sequences a batch.
std::vector<Json> llama_records(const std::string& folder, const Spread& spread) {
  const Options options = {"--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
                           "--model.config=tests/recipes/data/llama_8_layers",
                           "--model.pretrained_model_name_or_path=",
                           "--dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl",
                           "--step_scheduler.global_batch_size=16",
                           "--step_scheduler.local_batch_size=4",
                           "--step_scheduler.max_steps=3",
                           "--checkpoint.enabled=false"};
  const test::ProgramResult run =
      test::run_program(test::on(spread, test::smoke_run(folder, options)));
  EXPECT_EQ(run.status, 0) << run.err;
  return read_records(path_join(folder, "training.jsonl"));
}

/// Three steps of a recipe of recipes/smoke.
std::vector<Json> smoke_records(const char* recipe, const std::string& folder, Spread spread,
                                const Options& more = {}) {
  spread.options.insert(spread.options.end(), more.begin(), more.end());
  const test::ProgramResult run = test::run_program(test::on(
      spread, {test::automodel_binary(), "run", test::source_file(cat("recipes/smoke/", recipe)),
               cat("--checkpoint.checkpoint_dir=", folder), "--checkpoint.enabled=false",
               "--step_scheduler.max_steps=3"}));
  EXPECT_EQ(run.status, 0) << run.err;
  return read_records(path_join(folder, "training.jsonl"));
}

/// Without the loss that depends on how tokens are spread.
std::vector<Json> moe_records(const std::string& folder, const Spread& spread) {
  return smoke_records("tiny_qwen3_moe.yaml", folder, spread,
                       {"--model.config.router_aux_loss_coef=0"});
}

/// The other's numbers but for rounding to bfloat16, which shows: sums of float32 in another order
/// are within 2e-6 of each other (RanksTest), rounded ones are not within five times that.
void expect_rounded(const std::vector<Json>& exact, const std::vector<Json>& found) {
  ASSERT_EQ(found.size(), exact.size());
  double farthest = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const auto ratio = [&](const char* key) {
      return found[i].at(key).as_double() / exact[i].at(key).as_double();
    };
    EXPECT_NEAR(ratio("loss"), 1, 1e-3) << "step " << i;
    EXPECT_NEAR(ratio("grad_norm"), 1, 3e-2) << "step " << i;
    farthest = std::max(farthest, std::abs(ratio("grad_norm") - 1));
  }
  EXPECT_GT(farthest, 1e-5);
}

/// Ways of spreading a model over ranks that shard its parameters.
std::vector<std::pair<const char*, Spread>> sharded_spreads(const Options& precision) {
  const auto on = [&](int num_ranks, const Options& more) {
    Spread spread{num_ranks, {"--distributed.strategy=fsdp2"}};
    spread.options.insert(spread.options.end(), precision.begin(), precision.end());
    spread.options.insert(spread.options.end(), more.begin(), more.end());
    return spread;
  };
  const Options stages = {"--distributed.pp_size=2",
                          "--distributed.pipeline.pp_schedule=InterleavedZeroBubble"};
  Options split = {"--distributed.tp_size=2", "--distributed.sequence_parallel=true"};
  return {{"fsdp2 on 2", on(2, {})},
          {"recomputed", on(2, {"--distributed.activation_checkpointing=true"})},
          {"recomputed in part", on(2, {"--distributed.activation_checkpointing=selective"})},
          {"every micro-batch reduced", on(2, {"--distributed.defer_fsdp_grad_sync=false"})},
          {"replicas", on(4, {"--distributed.dp_replicate_size=2"})},
          {"cp2", on(2, {"--distributed.cp_size=2"})},
          {"tp2 with split sequences", on(4, split)},
          {"pp2", on(4, stages)}};
}

TEST(PrecisionRanksTest, AStreamInFloat32IsTrainedHoweverTheModelIsSpread) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = llama_records(folder.file("one"), {1, {}});
  ASSERT_EQ(one.size(), 3u);
  const Options policy = {
      "--distributed.mp_policy._target_=torch.distributed.fsdp.MixedPrecisionPolicy",
      "--distributed.mp_policy.param_dtype=bfloat16",
      "--distributed.mp_policy.reduce_dtype=float32",
      "--distributed.mp_policy.output_dtype=float32"};
  for (const auto& [name, spread] : sharded_spreads(policy)) {
    SCOPED_TRACE(name);
    expect_rounded(one, llama_records(folder.file(name), spread));
  }
  Spread experts{2, {"--distributed.strategy=fsdp2", "--distributed.ep_size=2"}};
  experts.options.insert(experts.options.end(), policy.begin(), policy.end());
  expect_rounded(moe_records(folder.file("one expert rank"), {1, {}}),
                 moe_records(folder.file("experts"), experts));
}

TEST(PrecisionRanksTest, AutocastIsTheSameHoweverTheModelIsSpread) {
  const TemporaryDirectory folder;
  const std::vector<Json> exact = llama_records(folder.file("exact"), {1, {}});
  const char* const autocast = "--distributed.autocast_dtype=bfloat16";
  const std::vector<Json> one = llama_records(folder.file("one"), {1, {autocast}});
  ASSERT_EQ(one.size(), 3u);
  expect_rounded(exact, one);
  // No more than sums in another order, each rounded to bfloat16.
  for (const auto& [name, spread] : sharded_spreads({autocast, "--distributed.mp_policy={}"})) {
    SCOPED_TRACE(name);
    const std::vector<Json> found = llama_records(folder.file(name), spread);
    expect_rounded(exact, found);
    ASSERT_EQ(found.size(), one.size());
    EXPECT_NEAR(found[0].at("loss").as_double() / one[0].at("loss").as_double(), 1, 1e-4);
  }
  const std::vector<Json> experts = moe_records(folder.file("experts on one"), {1, {}});
  for (const Options& options :
       {Options{autocast}, Options{autocast, "--distributed.mp_policy={}",
                                   "--distributed.strategy=fsdp2", "--distributed.ep_size=2"}}) {
    expect_rounded(experts, moe_records(folder.file(cat("experts ", options.size())),
                                        {options.size() == 1 ? 1 : 2, options}));
  }
}

/// Which tokens are masked depends on the number of ranks.
/// Every token goes to all experts, since choices turn at the first rounding. What the model
/// guesses in its first pass does so too: the first step's distance from float32, over four seeds,
/// is held against that of everything in bfloat16.
TEST(PrecisionRanksTest, BlockDiffusionIsTrainedInBothWays) {
  const TemporaryDirectory folder;
  const std::string config =
      read_file(test::source_file("configs/tiny/diffusion_gemma/config.json"));
  create_directories(folder.file("model"));
  write_file_atomic(folder.file("model/config.json"),
                    replace_all(config, "\"top_k_experts\": 2", "\"top_k_experts\": 8"));
  ASSERT_NE(read_file(folder.file("model/config.json")), config);
  const Options autocast = {"--distributed.autocast_dtype=bfloat16"};
  const Options stream = {"--distributed.mp_policy.param_dtype=bfloat16",
                          "--distributed.mp_policy.output_dtype=float32"};
  const Options stored = {"--model.torch_dtype=bfloat16"};
  const Options unwritten = {"--distributed.mp_policy=none"};
  const auto distance = [&](int num_ranks, const char* seed, const Options& options,
                            const char* key) {
    const auto first = [&](Options all) {
      const std::string place =
          folder.file(cat(num_ranks, " ", seed, replace_all(join(all, ""), "/", "")));
      all.insert(all.end(),
                 {cat("--seed=", seed), "--step_scheduler.max_steps=1",
                  cat("--model.config.pretrained_model_name_or_path=", folder.file("model"))});
      const Json step =
          path_exists(place)
              ? read_records(path_join(place, "training.jsonl")).at(0)
              : smoke_records("tiny_diffusion_gemma.yaml", place, {num_ranks, all}).at(0);
      return step.at(key).as_double();
    };
    return std::abs(first(options) / first({}) - 1);
  };
  double of_autocast = 0, of_stored = 0, of_stream = 0, of_unwritten = 0;
  for (const char* seed : {"42", "43", "44", "45"}) {
    of_autocast += distance(1, seed, autocast, "grad_norm");
    of_stored += distance(1, seed, stored, "grad_norm");
    of_stream += distance(2, seed, stream, "grad_norm");
    of_unwritten += distance(2, seed, unwritten, "grad_norm");
    EXPECT_LT(distance(1, seed, autocast, "loss"), 1e-3);
    EXPECT_LT(distance(2, seed, stream, "loss"), 1e-3);
  }
  EXPECT_LE(of_autocast, 2 * of_stored);
  EXPECT_LE(of_stream, 2 * of_unwritten);
  EXPECT_GT(of_autocast, 0);
  EXPECT_GT(of_stream, 0);
}

/// The block that upstream's configuration class shows.
TEST(PrecisionRanksTest, TheDocumentedBlockTrainsOnTwoRanks) {
  const TemporaryDirectory folder;
  const std::string text =
      replace_all(read_file(test::source_file("recipes/smoke/tiny_llama_sft.yaml")),
                  "distributed:\n  strategy: ddp\n",
                  "distributed:\n"
                  "  strategy: fsdp2\n"
                  "  mp_policy:\n"
                  "    _target_: torch.distributed.fsdp.MixedPrecisionPolicy\n"
                  "    param_dtype: bfloat16\n"
                  "    reduce_dtype: float32\n"
                  "    output_dtype: float32\n");
  write_file_atomic(folder.file("recipe.yaml"), text);
  const auto run = [&](const char* name, const Options& more) {
    Options arguments = {test::automodel_binary(), "run", folder.file("recipe.yaml"),
                         cat("--checkpoint.checkpoint_dir=", folder.file(name))};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const test::ProgramResult result = test::run_program(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return read_records(path_join(folder.file(name), "training.jsonl"));
  };
  // 21 rows: two ranks have five steps of four each in an epoch, and one has a last one of one row.
  const std::string five = "--step_scheduler.max_steps=5";
  const std::vector<Json> one = run("one", {five});
  EXPECT_EQ(one.size(), 5u);
  expect_rounded(one, run("two", {"--nproc-per-node=2", five}));
}

}  // namespace
}  // namespace automodel::recipes

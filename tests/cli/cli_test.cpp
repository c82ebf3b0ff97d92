#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::cli {
namespace {

using test::ProgramResult;
using test::source_file;
using test::TemporaryDirectory;
using testing::HasSubstr;

ProgramResult automodel(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), test::automodel_binary());
  return test::run_program(arguments);
}

/// The CPU time that a program took, which other programs beside it do not change much.
double cpu_seconds(const rusage& usage) {
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// A plan as JSON, which takes little beside loading the program, whatever machine it is.
Json quick_plan(const std::string& recipe, const std::string& world_size) {
  test::Program help({test::automodel_binary(), "--help"});
  rusage loading{};
  EXPECT_EQ(help.wait(&loading).status, 0);
  test::Program program(
      {test::automodel_binary(), "plan", recipe, "--world-size", world_size, "--json"});
  rusage usage{};
  const ProgramResult run = program.wait(&usage);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_LT(cpu_seconds(usage), 4 * cpu_seconds(loading));
  EXPECT_LT(usage.ru_maxrss, 2 * loading.ru_maxrss);
  return Json::parse(run.out, "plan");
}

const char* const kSmoke = "recipes/smoke/tiny_llama_sft.yaml";

TEST(CliTest, NothingGivenShowsTheCommandsAndWhatExitStatusesMean) {
  const ProgramResult help = automodel({});
  EXPECT_EQ(help.status, 0);
  for (const char* text : {"automodel run recipe.yaml", "check", "explain", "tokenize",
                           "render-chat", "parity", "75 saved after a preemption signal"}) {
    EXPECT_THAT(help.out, HasSubstr(text));
  }
}

TEST(CliTest, UnknownCommandsGetASuggestion) {
  const ProgramResult run = automodel({"chekc", kSmoke});
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.err,
            "unknown command 'chekc'; did you mean 'check'?; commands: run, check, plan, "
            "inspect-data, schema, "
            "explain, "
            "tokenize, render-chat, parity, generate, merge-lora, export, ls, cp, new, doctor, "
            "completion, report, "
            "watch, serve, version; "
            "or give a recipe (.yaml)\n");
}

TEST(CliTest, AMissingRecipeIsSaid) {
  const ProgramResult run = automodel({"run", "nowhere.yaml"});
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.err, "there is no recipe nowhere.yaml\n");
  EXPECT_EQ(
      automodel({"run", "recipes/quickstrat.yaml"}).err,
      "there is no recipe recipes/quickstrat.yaml; did you mean 'recipes/quickstart.yaml'?\n");
  EXPECT_EQ(automodel({"run", "quickstart"}).err,
            "there is no recipe quickstart; automodel ls names those that come with the program, "
            "automodel cp copies one\n");
}

TEST(CliTest, EachCommandAsksForItsRecipe) {
  for (const char* command : {"run", "check", "plan", "inspect-data"}) {
    const ProgramResult run = automodel({command});
    EXPECT_EQ(run.status, 2);
    EXPECT_EQ(run.err, cat("which recipe? automodel ", command,
                           " RECIPE.yaml; automodel ls lists those that come with the program\n"));
  }
}

TEST(CliTest, AnOptionOfAnotherCommandIsNoKey) {
  const ProgramResult ranks = automodel({"check", kSmoke, "--nproc-per-node", "2"});
  EXPECT_EQ(ranks.status, 2);
  EXPECT_EQ(ranks.err,
            "automodel check has no option --nproc-per-node; run has it; here --world-size says "
            "the number of ranks\n");
  const ProgramResult size = automodel({"run", kSmoke, "--world-size=2"});
  EXPECT_EQ(size.status, 2);
  EXPECT_EQ(size.err, "automodel run has no option --world-size; check, plan have it\n");
  // `generate` has an option of this name; a recipe has a key.
  const ProgramResult seed = automodel({"check", kSmoke, "--seed", "7"});
  EXPECT_EQ(seed.status, 0) << seed.err;
}

TEST(CliTest, AMisspeltOptionIsNoKey) {
  const ProgramResult run = automodel({"run", kSmoke, "--nproc-per-nod", "2"});
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.err,
            "automodel run has no option --nproc-per-nod; did you mean --nproc-per-node?\n");
  EXPECT_EQ(automodel({"inspect-data", kSmoke, "--sampels=3"}).err,
            "automodel inspect-data has no option --sampels; did you mean --samples?\n");
}

TEST(CliTest, HelpIsACommandToo) {
  const ProgramResult all = automodel({"help"});
  EXPECT_EQ(all.status, 0);
  EXPECT_EQ(all.out, automodel({"--help"}).out);
  const ProgramResult one = automodel({"help", "report"});
  EXPECT_EQ(one.status, 0);
  EXPECT_EQ(one.out, automodel({"report", "--help"}).out);
}

TEST(CliTest, SamplesBeyondTheModelsPositionsAreWarnedOf) {
  const ProgramResult run = automodel({"check", kSmoke, "--dataset.seq_length=100000"});
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.out + run.err, HasSubstr("warning: seq_length 100000 is longer than the "));
  EXPECT_THAT(run.out + run.err, HasSubstr("positions that the model was made for"));
}

TEST(CliTest, AKeyWithoutItsSectionIsFound) {
  const ProgramResult run = automodel({"check", kSmoke, "--max_steps=4"});
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.out + run.err,
              HasSubstr("unknown section 'max_steps'; did you mean 'step_scheduler.max_steps'?"));
  const ProgramResult lr = automodel({"explain", "lr"});
  EXPECT_EQ(lr.status, 0) << lr.err;
  EXPECT_EQ(lr.out, automodel({"explain", "optimizer.lr"}).out);
  EXPECT_THAT(lr.out,
              HasSubstr("adamw, fused_adam, flash_adamw: number, at least 0 (default 1e-04)"));
  EXPECT_THAT(automodel({"explain", "distributed"}).out,
              HasSubstr("data_parallel_sharding_strategy: one of no_shard, optim, "));
  EXPECT_THAT(automodel({"explain", "warmup_steps"}).out,
              testing::AllOf(HasSubstr("benchmark.warmup_steps"),
                             HasSubstr("lr_scheduler.lr_warmup_steps")));
  EXPECT_THAT(automodel({"explain", "dpo"}).out,
              HasSubstr("dpo: training on preferences (DPO, ORPO, KTO, reward models) is not in"));
  EXPECT_THAT(automodel({"explain", "validation_dataset_mine.split"}).out,
              HasSubstr("validation_dataset_mine.split: any value (default by _target_)"));
}

TEST(CliTest, NoRanksAreRefused) {
  const ProgramResult run = automodel({"run", kSmoke, "--nproc-per-node", "0"});
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.err, "--nproc-per-node must be at least 1, found 0\n");
}

TEST(CliTest, RanksAreNotStartedTwice) {
  const ProgramResult run =
      test::run_program({test::automodel_binary(), "run", kSmoke, "--nproc-per-node", "2"},
                        {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
                         "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"});
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.err,
            "--nproc-per-node starts ranks on this machine, but torchrun has started this process "
            "as rank 1 of 2 already; leave it out\n");
}

TEST(CliTest, ARecipeAloneIsRun) {
  const TemporaryDirectory folder;
  const std::string place = cat("--checkpoint.checkpoint_dir=", folder.file("run"));
  for (const std::vector<std::string>& form :
       {std::vector<std::string>{kSmoke}, {"-c", kSmoke}, {"run", "--config", kSmoke}}) {
    std::vector<std::string> arguments = form;
    arguments.insert(arguments.end(),
                     {place, "--checkpoint.enabled=false", "step_scheduler.max_steps=1"});
    const ProgramResult run = automodel(arguments);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("step 0 | epoch 0 | loss 7.66"));
  }
}

TEST(CliTest, CheckTellsRightWrongAndUnsupportedApart) {
  const ProgramResult right = automodel({"check", kSmoke});
  EXPECT_EQ(right.status, 0);
  EXPECT_EQ(right.out, cat("checked for 1 rank, the fewest that the recipe fits; --world-size says "
                           "another number\n",
                           kSmoke, ": ok for 1 rank\n"));
  const ProgramResult wrong = automodel({"check", kSmoke, "--optimizer.lr=-1"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.out, HasSubstr("command line: error: expected a number at least 0"));
  const ProgramResult unsupported = automodel({"check", kSmoke, "--domain_mixture.enabled=true"});
  EXPECT_EQ(unsupported.status, 6);
  EXPECT_THAT(unsupported.out, HasSubstr("unsupported: domain mixtures are not in this version"));
}

TEST(CliTest, ARecipeWithoutAnEndIsReadToItsLargestSize) {
  const ProgramResult run = automodel({"check", "/dev/zero"});
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.out + run.err, HasSubstr("a recipe has at most 4 MiB, this one has more"));
}

TEST(CliTest, AFileBeyondTheLimitOfTheShellIsAnErrorThatNamesIt) {
  const TemporaryDirectory folder;
  const ProgramResult run = test::run_program(
      {"/bin/bash", "-c",
       cat("ulimit -f 64; exec ", test::automodel_binary(), " run ", test::source_file(kSmoke),
           " --step_scheduler.max_steps=1 --checkpoint.checkpoint_dir=", folder.file("run"))});
  EXPECT_EQ(run.status, 3) << run.err;
  EXPECT_THAT(run.err, HasSubstr(folder.file("run")));
  EXPECT_THAT(run.err, HasSubstr("File too large"));
}

TEST(CliTest, CheckTakesTheRanksThatTheRecipeNeeds) {
  const ProgramResult run = automodel({"check", kSmoke, "--distributed.dp_size=2"});
  EXPECT_EQ(run.status, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("checked for 2 ranks, the fewest that the recipe fits"));
}

TEST(CliTest, PlanShowsMeshUnitsBytesAndCollectives) {
  const ProgramResult run =
      automodel({"plan", "recipes/smoke/mock_pretrain.yaml", "--world-size", "2"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(
      run.out,
      "recipes/smoke/mock_pretrain.yaml: Qwen3ForCausalLM, 242112 parameters (242112 trained)\n"
      "mesh of 2 ranks: pp 1, dp_replicate 1, dp_shard 2, cp 1, tp 1 (the last axis varies "
      "fastest)\n"
      "  dp_shard      1 group of 2: 0-1\n"
      "  dp            1 group of 2: 0-1\n"
      "  dp_shard_cp   1 group of 2: 0-1\n"
      "  strategy                  fsdp2, over 2 ranks: parameters sharded, gradients sharded, "
      "optimizer state sharded\n"
      "  dtypes                    stored float32, computed bfloat16, reduced float32\n"
      "  activation checkpointing  off\n"
      "  tensor parallelism        off (tp_size 1)\n"
      "  a micro-batch on a rank   4 sequences of 32 tokens\n"
      "  micro-batches a step      1\n"
      "  unit                 parameters    dtype  state on a rank  gathered whole\n"
      "  (root)                   131136  float32          1.0 MiB         256 KiB\n"
      "  model.layers.0 .. 1  55488 each  float32     434 KiB each    108 KiB each\n"
      "bytes on every rank, at the fullest moment of a step (the loss)\n"
      "  parameters                  473 KiB\n"
      "  optimizer state             946 KiB\n"
      "  gathered parameters         364 KiB\n"
      "  kept activations            460 KiB\n"
      "  logits and their gradients  1.0 MiB\n"
      "  total                       3.2 MiB\n"
      "  the program itself is not counted; the largest unit is the root with 131136 parameters\n"
      "collectives of a step, bytes of the whole tensors\n"
      "  all-gathers               4, 581 KiB\n"
      "  reduce-scatters           3, 946 KiB\n"
      "  bytes of the fullest rank\n"
      "  loading weights            3.1 MiB\n"
      "  a step                     3.2 MiB\n"
      "  saving a checkpoint        1.6 MiB\n");
}

TEST(CliTest, PlanOfSeventyBillionParametersIsThereAtOnce) {
  const Json plan = quick_plan("recipes/llm_pretrain/llama3.3_70b_64_ranks.yaml", "64");
  EXPECT_EQ(plan.at("num_parameters").as_int(), 70553706496);
  EXPECT_EQ(plan.at("units").size(), 4u);  // the embedding, the layers, the last norm, the head
  EXPECT_EQ(plan.at("units").as_array()[1].at("count").as_int(), 80);
  // bfloat16; 64 ranges, and nothing to pad at these sizes.
  EXPECT_EQ(plan.at("bytes").at("parameters").as_int(), 70553706496 * 2 / 64);
  EXPECT_EQ(plan.at("bytes").at("optimizer").as_int(), 70553706496 * 4 / 64);
}

TEST(CliTest, PlanGivesContextParallelRanksTheirShareOfTheTokens) {
  const auto plan_of = [](const std::string& cp_size) {
    const ProgramResult run =
        automodel({"plan", "recipes/smoke/mock_pretrain.yaml", "--world-size", "2", "--json",
                   // Without norms of heads, which are made again on one rank alone.
                   "--model.config=configs/tiny/llama", cat("--distributed.cp_size=", cp_size),
                   "--dataset.seq_len=2046", "--distributed.mp_policy.param_dtype=float32"});
    EXPECT_EQ(run.status, 0) << run.err;
    return Json::parse(run.out, "plan");
  };
  const Json one = plan_of("1");
  const Json two = plan_of("2");
  EXPECT_EQ(one.at("sequence_length").as_int(), 2046);
  EXPECT_EQ(two.at("sequence_length").as_int(), 1024);  // of 2048: a multiple of 2 cp
  EXPECT_EQ(two.at("num_parts").as_int(), 2);
  EXPECT_EQ(two.at("bytes").at("state").as_int(), one.at("bytes").at("state").as_int());
  const double share =
      two.at("bytes").at("activations").as_double() / one.at("bytes").at("activations").as_double();
  EXPECT_NEAR(share, 0.5, 0.01);
}

TEST(CliTest, PlanPrintsStagesScheduleBubbleAndPeaksOfAPipeline) {
  const ProgramResult run =
      automodel({"plan", "recipes/smoke/pipeline_pretrain.yaml", "--world-size", "2"});
  EXPECT_EQ(run.status, 0) << run.err;
  const size_t begin = run.out.find("pipeline: ");
  ASSERT_NE(begin, std::string::npos) << run.out;
  EXPECT_EQ(
      run.out.substr(begin),
      "pipeline: 1F1B, 2 stages on 2 ranks, 4 micro-batches of 1 sequence\n"
      "  bubble 20.0 % of the ranks' time (stages of equal time, a backward twice a forward)\n"
      "  8 messages a batch, 64 KiB\n"
      "  stage  pp rank  parameters    state  kept of a micro-batch                              "
      "modules\n"
      "  0            0      174208  2.7 MiB               88.8 KiB   model.embed_tokens, "
      "model.layers.0\n"
      "  1            1      174272  2.7 MiB               88.9 KiB  model.layers.1, model.norm, "
      "lm_head\n"
      "bytes on a rank of each stage, at the fullest moment of a step\n"
      "  pp rank  in flight  kept activations    state    total\n"
      "  0                2           178 KiB  2.7 MiB  2.9 MiB\n"
      "  1                1          88.9 KiB  2.7 MiB  3.7 MiB\n"
      "  bytes of the fullest rank\n"
      "  loading weights            3.2 MiB\n"
      "  a step                     3.7 MiB\n"
      "  saving a checkpoint        2.9 MiB\n"
      "not counted: collectives inside the stages, messages' buffers\n");
}

TEST(CliTest, PlanOfSeventyBillionParametersOnAPipeline) {
  const ProgramResult run =
      automodel({"plan", "recipes/llm_pretrain/llama3.3_70b_pipeline_64_ranks.yaml", "--world-size",
                 "64", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json pipeline = Json::parse(run.out, "plan").at("pipeline");
  EXPECT_EQ(pipeline.at("num_stages").as_int(), 8);
  EXPECT_NEAR(pipeline.at("bubble").as_double(), 3.0 / (2 * 8 + 3), 1e-12);
  int64_t num_parameters = 0, state = 0;
  for (const Json& stage : pipeline.at("stages").as_array()) {
    num_parameters += stage.at("num_parameters").as_int();
  }
  for (const Json& rank : pipeline.at("ranks").as_array()) state += rank.at("state").as_int();
  EXPECT_EQ(num_parameters, 70553706496);
  // bfloat16 weights, gradients and two moments over 16 ranks; padding is small.
  EXPECT_NEAR(static_cast<double>(state), num_parameters * 8.0 / 16, 1e6);
}

TEST(CliTest, PlanShowsTheTensorParallelPlanAndARanksPart) {
  const std::vector<std::string> arguments = {"plan", "recipes/smoke/mock_pretrain.yaml",
                                              "--world-size", "4", "--distributed.tp_size=2"};
  const ProgramResult run = automodel(arguments);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("  tensor parallelism        over 2 ranks\n"));
  EXPECT_THAT(
      run.out,
      HasSubstr(
          "tensor-parallel plan; what it does not name is whole on every rank\n"
          "  lm_head                          colwise: input whole, output split by features\n"
          "  model.embed_tokens               rowwise: input whole, output whole\n"
          "  model.layers.*.mlp.down_proj     rowwise: input split by features, output whole\n"));
  // Half of 55296 elements of projections and all of 192 of norms; half of a table of 131072.
  EXPECT_THAT(run.out, HasSubstr("  model.layers.0 .. 1  27840 each  float32     218 KiB each"));
  EXPECT_THAT(run.out, HasSubstr("  (root)                    65600  float32          512 KiB"));
  std::vector<std::string> by_positions = arguments;
  by_positions.insert(by_positions.end(), {"--distributed.sequence_parallel=true", "--json"});
  const Json plan = Json::parse(automodel(by_positions).out, "plan");
  EXPECT_EQ(plan.at("num_parameters").as_int(), 242112);
  EXPECT_TRUE(plan.at("sequence_parallel").as_bool());
  EXPECT_EQ(plan.at("tp_plan").at("model.norm").as_string(), "sequence_parallel");
  EXPECT_EQ(plan.at("units").as_array()[1].at("num_parameters").as_int(), 27840);
}

TEST(CliTest, PlanOfAPipelineWhoseStagesAreSplit) {
  const auto plan_of = [](std::vector<std::string> options) {
    std::vector<std::string> arguments = {"plan", "recipes/smoke/pipeline_pretrain.yaml", "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const ProgramResult run = automodel(arguments);
    EXPECT_EQ(run.status, 0) << run.err;
    return Json::parse(run.out, "plan");
  };
  const Json whole = plan_of({"--world-size", "2"}).at("pipeline");
  const Json all = plan_of({"--world-size", "4", "--distributed.tp_size=2"});
  const Json& split = all.at("pipeline");
  // Halves of an embedding of 131072 and of a layer's 43008 elements of projections; norms whole.
  EXPECT_EQ(whole.at("stages").as_array()[0].at("num_parameters").as_int(), 174208);
  EXPECT_EQ(split.at("stages").as_array()[0].at("num_parameters").as_int(), 87168);
  EXPECT_LT(split.at("stages").as_array()[0].at("kept").as_int(),
            whole.at("stages").as_array()[0].at("kept").as_int());
  EXPECT_EQ(split.at("sent_bytes").as_int(), whole.at("sent_bytes").as_int());
  EXPECT_EQ(all.at("not_counted").size(), 2u);
  const Json by_positions = plan_of(
      {"--world-size", "4", "--distributed.tp_size=2", "--distributed.sequence_parallel=true"});
  EXPECT_EQ(by_positions.at("pipeline").at("sent_bytes").as_int(),
            whole.at("sent_bytes").as_int() / 2);
}

TEST(CliTest, PlanShowsWhereExpertsLieAndHowTokensTravel) {
  const std::vector<std::string> arguments = {"plan", "recipes/smoke/tiny_qwen3_moe.yaml",
                                              "--world-size", "4", "--distributed.ep_size=2"};
  const ProgramResult run = automodel(arguments);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("  ep_shard      2 groups of 2: 0, 2; 1, 3\n"
                                 "  ep            2 groups of 2: 0-1; 2-3\n"));
  EXPECT_THAT(
      run.out,
      HasSubstr("  expert parallelism        over 2 ranks, experts sharded over 2 "
                "(ep_shard); tokens planned as if all experts were chosen equally often\n"));
  EXPECT_THAT(run.out, HasSubstr("  model.layers.0 .. 1              25280 each  float32    98.8 "
                                 "KiB each   98.8 KiB each\n"));
  EXPECT_THAT(run.out, HasSubstr("  model.layers.0.mlp.experts .. 1  36864 each  float32     288 "
                                 "KiB each    144 KiB each\n"));
  EXPECT_THAT(run.out, HasSubstr("  all-gathers               10, 2.4 MiB\n"
                                 "  reduce-scatters           5, 1.2 MiB\n"
                                 "  experts' all-gathers      4, 576 KiB\n"
                                 "  experts' reduce-scatters  2, 288 KiB\n"
                                 "  all-to-alls of tokens     24, 6.5 MiB\n"));
  std::vector<std::string> as_json = arguments;
  as_json.emplace_back("--json");
  const Json plan = Json::parse(automodel(as_json).out, "plan");
  EXPECT_EQ(plan.at("num_parameters").as_int(), 460224);
  EXPECT_EQ(plan.at("mesh").at("ep").as_int(), 2);
  EXPECT_EQ(plan.at("mesh").at("ep_shard").as_int(), 2);
  const Json& collectives = plan.at("collectives_of_a_step");
  EXPECT_EQ(collectives.at("num_expert_gathers").as_int(), 4);
  EXPECT_EQ(collectives.at("expert_gathered_bytes").as_int(), 4 * 36864 * 4);
  EXPECT_EQ(collectives.at("num_token_exchanges").as_int(), 24);
}

TEST(CliTest, PlanOfThirtyBillionParametersOfExpertsIsThereAtOnce) {
  const Json plan = quick_plan("recipes/llm_pretrain/qwen3_30b_a3b_64_ranks.yaml", "64");
  EXPECT_EQ(plan.at("num_parameters").as_int(), 30532122624);
  EXPECT_EQ(plan.at("mesh").at("ep_shard").as_int(), 8);
  // Experts over 8 x 8 ranks, all else over 64, in bfloat16; padding is small.
  EXPECT_NEAR(plan.at("bytes").at("parameters").as_double(), 30532122624 * 2.0 / 64, 4096);
  EXPECT_EQ(plan.at("units").as_array().back().at("count").as_int(), 48);
}

TEST(CliTest, PlanOfExpertsOnStagesAndSplitRanks) {
  const ProgramResult run =
      automodel({"plan", "recipes/smoke/tiny_qwen3_moe.yaml", "--world-size", "8",
                 "--distributed.ep_size=2", "--distributed.tp_size=2", "--distributed.pp_size=2",
                 "--distributed.pipeline.pp_schedule=1f1b", "--json"});
  EXPECT_EQ(run.status, 0) << run.err;
  const Json plan = Json::parse(run.out, "plan");
  EXPECT_EQ(plan.at("mesh").at("ep_shard").as_int(), 2);
  // Half an embedding of 131072 elements, half of a layer's experts, of whose attention a half.
  const Json& stages = plan.at("pipeline").at("stages");
  EXPECT_EQ(stages.as_array()[0].at("num_parameters").as_int(), 65536 + 36864 + 12992);
  EXPECT_EQ(stages.as_array()[1].at("num_parameters").as_int(), 65536 + 36864 + 12992 + 64);
}

TEST(CliTest, PlanOfLayersThatRunThreeTimesLeavesActivationsOut) {
  const std::vector<std::string> arguments = {"plan", "recipes/smoke/tiny_diffusion_gemma.yaml",
                                              "--world-size", "2"};
  const ProgramResult run = automodel(arguments);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("  model.layers.0.moe.experts .. 3  36864 each"));
  EXPECT_THAT(run.out, HasSubstr("  total but activations "));
  EXPECT_THAT(run.out, testing::EndsWith("not counted: activations of layers that run several "
                                         "times a micro-batch\n"));
  std::vector<std::string> as_json = arguments;
  as_json.emplace_back("--json");
  const Json plan = Json::parse(automodel(as_json).out, "plan");
  EXPECT_FALSE(plan.at("bytes").contains("activations"));
  EXPECT_FALSE(plan.at("bytes").contains("total"));
  EXPECT_GT(plan.at("bytes").at("state").as_int(), 0);
  EXPECT_EQ(plan.at("collectives_of_a_step").at("num_expert_gathers").as_int(), 36);
}

TEST(CliTest, PlanRefusesNoRanks) {
  const ProgramResult zero = automodel({"plan", kSmoke, "--world-size", "0"});
  EXPECT_EQ(zero.status, 2);
  EXPECT_EQ(zero.err, "--world-size must be at least 1, found 0\n");
}

TEST(CliTest, ExplainGivesMeaningDefaultAndRange) {
  const ProgramResult run = automodel({"explain", "step_scheduler.global_batch_size"});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out,
            "step_scheduler.global_batch_size: integer, above 0 (default 32)\n"
            "  sequences per optimizer step over all data-parallel ranks\n");
  const ProgramResult typo = automodel({"explain", "step_scheduler.global_batch_sice"});
  EXPECT_EQ(typo.status, 2);
  EXPECT_EQ(typo.err,
            "no key 'global_batch_sice' in 'step_scheduler'; did you mean 'global_batch_size'?\n");
}

TEST(CliTest, TheSchemaInTheRepositoryIsTheProgramsSchema) {
  const ProgramResult run = automodel({"schema"});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, read_file(source_file("schemas/recipe.schema.json")))
      << "run: automodel schema > schemas/recipe.schema.json && scripts/make_recipe_reference.py";
}

TEST(CliTest, TokenizeNamesTheLineThatIsWrong) {
  const ProgramResult run = automodel({"tokenize", "--tokenizer", "recipes/data"});
  EXPECT_EQ(run.status, 3);
  EXPECT_THAT(run.err, HasSubstr("recipes/data"));
}

TEST(CliTest, ParityFailsAboveATolerance) {
  const std::vector<std::string> arguments = {"parity", "--model", "tests/golden/qwen3_tied",
                                              "--reference",
                                              "tests/golden/qwen3_tied/reference.safetensors"};
  EXPECT_EQ(automodel(arguments).status, 0);
  std::vector<std::string> strict = arguments;
  strict.insert(strict.end(), {"--tolerance-logits", "1e-12"});
  EXPECT_EQ(automodel(strict).status, 1);
}

TEST(CliTest, ParityTakesThePlainPathWhenAsked) {
  std::vector<std::string> arguments = {"parity", "--model", "tests/golden/qwen3_tied",
                                        "--reference",
                                        "tests/golden/qwen3_tied/reference.safetensors"};
  const ProgramResult fused = automodel(arguments);
  arguments.insert(arguments.end(), {"--kernels", "plain"});
  const ProgramResult plain = automodel(arguments);
  EXPECT_EQ(plain.status, 0) << plain.out;
  EXPECT_NE(plain.out, fused.out);  // other roundings
  arguments.back() = "fast";
  EXPECT_EQ(automodel(arguments).status, 2);
}

TEST(CliTest, ParityOnADeviceThatIsNotThere) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  std::vector<std::string> arguments = {"parity",
                                        "--model",
                                        "tests/golden/qwen3_tied",
                                        "--reference",
                                        "tests/golden/qwen3_tied/reference.safetensors",
                                        "--device",
                                        "cuda"};
  const ProgramResult run = automodel(arguments);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(run.status, 6) << run.out;
  EXPECT_THAT(run.err, HasSubstr("--device cuda: "));
  EXPECT_THAT(run.err, HasSubstr("no CUDA"));
  arguments.back() = "gpu";
  EXPECT_EQ(automodel(arguments).status, 2);
}

TEST(CliTest, VersionIsOneLine) {
  const ProgramResult run = automodel({"version"});
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.out, testing::MatchesRegex("automodel [0-9.]+ \\(LibTorch [0-9.]+\\)\n"));
}

TEST(CliTest, TheStartSetsWhatLibrariesReadBeforeThereAreThreads) {
  const TemporaryDirectory folder;
  const std::string program = folder.file("automodel");
  ASSERT_EQ(test::run_program({"/bin/cp", test::automodel_binary(), program}).status, 0);
  folder.write("automodel-main", "#!/bin/sh\nenv | grep ^TORCH_ | sort\n");
  ASSERT_EQ(test::run_program({"/bin/chmod", "+x", folder.file("automodel-main")}).status, 0);
  const ProgramResult run = test::run_program({program}, {"TORCH_NCCL_DUMP_ON_TIMEOUT=1"});
  EXPECT_EQ(run.out,
            "TORCH_FR_BUFFER_SIZE=0\n"
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=0\nTORCH_NCCL_DUMP_ON_TIMEOUT=1\n"
            "TORCH_NCCL_ENABLE_MONITORING=0\nTORCH_NCCL_RETHROW_CUDA_ERRORS=0\n");
}

/// Or the next socket would have the number of one of them, and get what is printed.
TEST(CliTest, TheStartOpensStandardDescriptorsThatAreClosed) {
  const TemporaryDirectory folder;
  const std::string program = folder.file("automodel");
  ASSERT_EQ(test::run_program({"/bin/cp", test::automodel_binary(), program}).status, 0);
  folder.write("automodel-main",
               cat("#!/bin/sh\nfor n in 0 1 2; do file=$(readlink /proc/$$/fd/$n); echo $file >> ",
                   folder.file("open"), "; done\n"));
  ASSERT_EQ(test::run_program({"/bin/chmod", "+x", folder.file("automodel-main")}).status, 0);
  test::run_program({"/bin/sh", "-c", cat(program, " <&- >&- 2>&-")});
  EXPECT_EQ(read_file(folder.file("open")), "/dev/null\n/dev/null\n/dev/null\n");
}

TEST(CliTest, OutputThatCannotBeWrittenIsAnError) {
  for (const char* command : {"schema", "version"}) {
    const ProgramResult run = test::run_program(
        {"/bin/sh", "-c", cat(test::automodel_binary(), " ", command, " > /dev/full")});
    EXPECT_EQ(run.status, 3) << command;
    EXPECT_EQ(run.err, "cannot write all of the output to standard output\n");
  }
  for (const char* command : {" run ", " "}) {
    const TemporaryDirectory folder;
    const ProgramResult trained = test::run_program(
        {"/bin/sh", "-c",
         cat(test::automodel_binary(), command, kSmoke, " --step_scheduler.max_steps=1",
             " --checkpoint.checkpoint_dir=", folder.file("run"), " > /dev/full")});
    EXPECT_EQ(trained.status, 0) << trained.err;
    EXPECT_TRUE(path_exists(folder.file("run/LATEST")));
  }
}

/// Commands that run beside each other: 20 at once, and others that were stopped in the middle of
/// whatever they were doing, so that each lock they could hold is held.
TEST(CliTest, CommandsDoNotWaitForEachOther) {
  const std::vector<std::string> check = {test::automodel_binary(), "check", kSmoke};
  rusage alone{};
  test::Program first(check);
  ASSERT_EQ(first.wait(&alone).status, 0);
  std::vector<std::unique_ptr<test::Program>> stopped, beside;
  for (int i = 0; i < 12; ++i) {
    stopped.push_back(std::make_unique<test::Program>(check));
    ::usleep(static_cast<useconds_t>(20'000 * i));  // wherever that is
    ::kill(stopped.back()->pid(), SIGSTOP);
  }
  for (int i = 0; i < 20; ++i) beside.push_back(std::make_unique<test::Program>(check));
  for (const auto& program : beside) {
    rusage usage{};
    const ProgramResult result = program->wait(&usage);
    EXPECT_EQ(result.status, 0) << result.err;
    // Spinning costs more than the work; a machine that is busy, caches and all, makes the work
    // itself somewhat dearer.
    EXPECT_LT(cpu_seconds(usage), 5 * cpu_seconds(alone) + 0.5);
  }
  for (const auto& program : stopped) {
    ::kill(program->pid(), SIGCONT);
    EXPECT_EQ(program->wait().status, 0);
  }
}

}  // namespace
}  // namespace automodel::cli

// Runs of mixtures of experts as processes.
#include <gtest/gtest.h>

#include <cmath>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::expect_equal_records;
using test::ProgramResult;
using test::read_records;
using test::Spread;
using test::TemporaryDirectory;

std::vector<std::string> moe_run(const std::string& folder, const Spread& spread) {
  return test::on(spread, {test::automodel_binary(), "run",
                           test::source_file("recipes/smoke/tiny_qwen3_moe.yaml"),
                           cat("--checkpoint.checkpoint_dir=", folder)});
}

std::vector<Json> moe_records(const std::string& folder, const Spread& spread) {
  const ProgramResult run = test::run_program(moe_run(folder, spread));
  EXPECT_EQ(run.status, 0) << run.err;
  return read_records(path_join(folder, "training.jsonl"));
}

/// The aux loss is a mean over the tokens of a micro-batch, so it differs between spreads.
Spread without_aux_loss(int num_ranks, std::vector<std::string> options = {}) {
  options.push_back("--model.config.router_aux_loss_coef=0");
  return {num_ranks, std::move(options)};
}

TEST(ExpertsTest, LossesDoNotDependOnWhereExpertsAre) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = moe_records(folder.file("one"), without_aux_loss(1));
  ASSERT_EQ(one.size(), 6u);
  const std::vector<std::pair<const char*, Spread>> spreads = {
      {"fsdp2 on 2", without_aux_loss(2)},
      {"ep2 on 2", without_aux_loss(2, {"--distributed.ep_size=2"})},
      {"ep2 on 4, sharded over 2", without_aux_loss(4, {"--distributed.ep_size=2"})},
      {"ep4 on 4", without_aux_loss(4, {"--distributed.ep_size=4"})},
      {"ep2 on 2, recomputed",
       without_aux_loss(
           2, {"--distributed.ep_size=2", "--distributed.activation_checkpointing=true"})},
      {"ep2 on 4, given up after forward",
       without_aux_loss(
           4, {"--distributed.ep_size=2", "--distributed.moe.reshard_after_forward=true"})},
      {"ep2 on 2, reduced after every micro-batch",
       without_aux_loss(2,
                        {"--distributed.ep_size=2", "--distributed.defer_fsdp_grad_sync=false"})}};
  for (const auto& [name, spread] : spreads) {
    SCOPED_TRACE(name);
    expect_equal_records(one, moe_records(folder.file(name), spread), 1e-5);
  }
}

Spread tensor_parallel(int num_ranks, int ep, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--distributed.tp_size=2", cat("--distributed.ep_size=", ep)});
  return without_aux_loss(num_ranks, more);
}

Spread staged(int num_ranks, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=1f1b",
                           "--distributed.pipeline.pp_microbatch_size=1"});
  return without_aux_loss(num_ranks, more);
}

constexpr const char* kSplitSequences = "--distributed.sequence_parallel=true";

std::vector<std::pair<const char*, Spread>> composed_spreads() {
  return {{"tp2", tensor_parallel(2, 1)},
          {"tp2 with split sequences", tensor_parallel(2, 1, {kSplitSequences})},
          {"ep2 over tensor-parallel ranks", tensor_parallel(2, 2)},
          {"ep2 x tp2 on 4", tensor_parallel(4, 2)},
          {"ep4 x tp2 on 4 with split sequences", tensor_parallel(4, 4, {kSplitSequences})},
          {"ep4 over cp2 x tp2", tensor_parallel(4, 4, {"--distributed.cp_size=2"})},
          {"ep2 inside replicas",
           without_aux_loss(4, {"--distributed.ep_size=2", "--distributed.dp_replicate_size=2"})},
          {"ep4 over replicas",
           without_aux_loss(4, {"--distributed.ep_size=4", "--distributed.dp_replicate_size=2"})},
          {"pp2", staged(2)},
          {"pp2 x ep2", staged(4, {"--distributed.ep_size=2"})},
          {"pp2 x tp2 x ep2", staged(4, {"--distributed.tp_size=2", "--distributed.ep_size=2"})}};
}

TEST(ExpertsTest, LossesDoNotDependOnTensorParallelRanksReplicasAndStages) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = moe_records(folder.file("one"), without_aux_loss(1));
  ASSERT_EQ(one.size(), 6u);
  for (const auto& [name, spread] : composed_spreads()) {
    SCOPED_TRACE(name);
    expect_equal_records(one, moe_records(folder.file(name), spread), 1e-5);
  }
}

/// GLM 4 MoE: a dense layer, a shared expert, and a correction that each step's load moves.
TEST(ExpertsTest, TheCorrectionFollowsTheLoadOfAllRanks) {
  const TemporaryDirectory folder;
  const auto corrected = [](Spread spread) {
    spread.options.insert(spread.options.end(),
                          {"--model.config.pretrained_model_name_or_path=tests/golden/glm4_moe",
                           "--model.config.n_routed_experts=8", "--model.config.vocab_size=2048",
                           "--model.moe_overrides.gate_bias_update_factor=0.001"});
    return spread;
  };
  const std::vector<Json> one = moe_records(folder.file("one"), corrected(without_aux_loss(1)));
  ASSERT_EQ(one.size(), 6u);
  for (const auto& [name, spread] : composed_spreads()) {
    SCOPED_TRACE(name);
    expect_equal_records(one, moe_records(folder.file(name), corrected(spread)), 1e-5);
  }
}

std::vector<Json> expert_loads(const std::string& folder) {
  std::vector<Json> events = read_records(path_join(folder, "events.jsonl"));
  std::erase_if(events,
                [](const Json& event) { return event.at("event").as_string() != "expert_load"; });
  return events;
}

TEST(ExpertsTest, TheLoadOfAllLayersIsRecordedOnAnyMesh) {
  const TemporaryDirectory folder;
  moe_records(folder.file("one"), without_aux_loss(1));
  const std::vector<Json> wanted = expert_loads(folder.file("one"));
  ASSERT_EQ(wanted.size(), 6U);
  for (const auto& [name, spread] : composed_spreads()) {
    SCOPED_TRACE(name);
    moe_records(folder.file(name), spread);
    const std::vector<Json> found = expert_loads(folder.file(name));
    ASSERT_EQ(found.size(), wanted.size());
    // Before the first update every mesh routes the same tokens to the same experts.
    EXPECT_EQ(found[0].at("layers").dump(), wanted[0].at("layers").dump());
    for (const Json& event : found) {
      ASSERT_EQ(event.at("layers").size(), wanted[0].at("layers").size());
      for (const Json& layer : event.at("layers").as_array()) {
        double sum = 0;
        for (const Json& share : layer.at("shares").as_array()) sum += share.as_double();
        EXPECT_NEAR(sum, 1, 1e-5 * static_cast<double>(layer.at("shares").size()));
      }
    }
  }
}

/// Upstream's GLM-4.5 has a correction and never moves it.
TEST(ExpertsTest, Glm4sCorrectionMovesWhenTheRecipeAsks) {
  const TemporaryDirectory folder;
  const auto losses = [&](const char* name, std::vector<std::string> more) {
    more.insert(more.end(), {"--model.config.pretrained_model_name_or_path=tests/golden/glm4_moe",
                             "--model.config.vocab_size=2048", "--step_scheduler.max_steps=3"});
    std::vector<double> found;
    for (const Json& record : moe_records(folder.file(name), {1, more})) {
      found.push_back(record.at("loss").as_double());
    }
    return found;
  };
  const std::vector<double> plain = losses("plain", {});
  ASSERT_EQ(plain.size(), 3u);
  EXPECT_EQ(losses("zero", {"--model.moe_overrides.gate_bias_update_factor=0"}), plain);
  const auto moved = losses("moved", {"--model.moe_overrides.gate_bias_update_factor=0.5"});
  ASSERT_EQ(moved.size(), 3u);
  EXPECT_EQ(moved[0], plain[0]);
  EXPECT_NE(moved[1], plain[1]);
}

/// Micro-batches of one sequence everywhere: then the aux loss is a mean over the same tokens.
TEST(ExpertsTest, TheAuxLossIsTheSameWhereverSequencesAndLayersLie) {
  const TemporaryDirectory folder;
  const auto with_aux = [&](const char* name, Spread spread, int batch) {
    spread.options.push_back("--model.config.router_aux_loss_coef=0.1");
    spread.options.push_back(cat("--step_scheduler.local_batch_size=", batch));
    return moe_records(folder.file(name), spread);
  };
  const std::vector<Json> one = with_aux("one", {1, {}}, 1);
  expect_equal_records(one, with_aux("pp2", staged(2), 2), 1e-5);
  expect_equal_records(one, with_aux("pp2 x ep2", staged(4, {"--distributed.ep_size=2"}), 2), 1e-5);
  expect_equal_records(one, with_aux("ep2 x tp2", tensor_parallel(2, 2), 1), 1e-5);
  expect_equal_records(one, with_aux("split", tensor_parallel(2, 2, {kSplitSequences}), 1), 1e-5);
  expect_equal_records(one, with_aux("cp2", without_aux_loss(2, {"--distributed.cp_size=2"}), 1),
                       1e-5);
}

TEST(ExpertsTest, TheAuxLossChangesGradientsAndNotTheLoss) {
  const TemporaryDirectory folder;
  const std::vector<Json> plain = moe_records(folder.file("plain"), without_aux_loss(1));
  const std::vector<Json> with_aux =
      moe_records(folder.file("aux"), {1, {"--model.config.router_aux_loss_coef=0.1"}});
  ASSERT_EQ(plain.size(), with_aux.size());
  EXPECT_EQ(plain[0].at("loss").as_double(), with_aux[0].at("loss").as_double());
  EXPECT_NE(plain[0].at("grad_norm").as_double(), with_aux[0].at("grad_norm").as_double());
}

TEST(ExpertsTest, MetricsAreOfTheLayersOfAllStages) {
  const TemporaryDirectory folder;
  const std::vector<std::string> metrics = {"--moe_metrics.enabled=true",
                                            "--moe_metrics.mode=detailed"};
  const std::vector<Json> one = moe_records(folder.file("one"), without_aux_loss(1, metrics));
  const std::vector<Json> two = moe_records(folder.file("two"), staged(2, metrics));
  ASSERT_EQ(two.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i) {
    for (const char* key : {"moe/cv_mean", "moe/layer_0/cv", "moe/layer_1/cv"}) {
      EXPECT_NEAR(two[i].at(key).as_double(), one[i].at(key).as_double(), 1e-3) << key;
    }
  }
}

TEST(ExpertsTest, AFakeBalancedGateGivesEveryExpertAsMuch) {
  const TemporaryDirectory folder;
  const std::vector<Json> records =
      moe_records(folder.file("run"), {2,
                                       {"--model.backend.fake_balanced_gate=true",
                                        "--moe_metrics.enabled=true", "--distributed.ep_size=2"}});
  ASSERT_EQ(records.size(), 6u);
  for (const Json& record : records) EXPECT_LT(record.at("moe/cv_max").as_double(), 0.01);
}

/// As upstream: with expert parallelism the moe section's policy is the whole model's.
TEST(ExpertsTest, ThePolicyOfTheMoeSectionIsTheModels) {
  const TemporaryDirectory folder;
  const auto with_policies = [&](const char* name, const char* model, const char* moe) {
    return moe_records(folder.file(name),
                       without_aux_loss(2, {"--distributed.ep_size=2",
                                            cat("--distributed.mp_policy.param_dtype=", model),
                                            cat("--distributed.moe.mp_policy.param_dtype=", moe),
                                            "--distributed.moe.mp_policy.reduce_dtype=float32"}));
  };
  const std::vector<Json> wide = with_policies("wide", "float32", "float32");
  const std::vector<Json> narrow = with_policies("narrow", "float32", "bfloat16");
  expect_equal_records(wide, with_policies("widened", "bfloat16", "float32"), 1e-7);
  expect_equal_records(narrow, with_policies("narrowed", "bfloat16", "bfloat16"), 1e-7);
  ASSERT_EQ(wide.size(), 6u);
  EXPECT_NE(wide[0].at("loss").as_double(), narrow[0].at("loss").as_double());
  EXPECT_NEAR(wide[0].at("loss").as_double() / narrow[0].at("loss").as_double(), 1, 1e-3);
}

TEST(ExpertsTest, MetricsOfTheLoadAreInTheRecords) {
  const TemporaryDirectory folder;
  const std::vector<Json> records = moe_records(
      folder.file("run"),
      {2,
       {"--moe_metrics.enabled=true", "--moe_metrics.mode=detailed", "--distributed.ep_size=2"}});
  ASSERT_EQ(records.size(), 6u);
  for (const Json& record : records) {
    EXPECT_GT(record.at("moe/cv_mean").as_double(), 0.0);
    EXPECT_NEAR(record.at("moe/layer_1/utilization_mean").as_double(), 1.0, 1e-9);
    EXPECT_GE(record.at("moe/aux_loss_mean").as_double(), 0.9);
  }
}

/// Six steps, against three and three more on another spread.
TEST(ExpertsTest, CheckpointsLoadOnOtherSpreads) {
  const TemporaryDirectory folder;
  const std::vector<Json> whole = moe_records(folder.file("whole"), without_aux_loss(1));
  const Spread spreads[] = {
      without_aux_loss(1),
      without_aux_loss(2, {"--distributed.ep_size=2"}),
      without_aux_loss(4, {"--distributed.ep_size=2"}),
      without_aux_loss(2),
      tensor_parallel(4, 2),
      without_aux_loss(4, {"--distributed.ep_size=2", "--distributed.dp_replicate_size=2"}),
      staged(4, {"--distributed.ep_size=2"}),
      tensor_parallel(2, 2)};
  for (size_t i = 0; i < std::size(spreads); ++i) {
    Spread saving = spreads[i];
    saving.options.push_back("--step_scheduler.max_steps=3");
    const Spread& loading = spreads[(i + 1) % std::size(spreads)];
    SCOPED_TRACE(i);
    const std::string target = folder.file(cat("run", i));
    moe_records(target, saving);
    expect_equal_records(whole, moe_records(target, loading), 1e-5);
  }
}

TEST(ExpertsTest, ExpertsThatDoNotDivideAreRefused) {
  const TemporaryDirectory folder;
  const ProgramResult run = test::run_program(
      moe_run(folder.file("run"),
              {3, {"--distributed.ep_size=3", "--step_scheduler.global_batch_size=18"}}));
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("ep_size 3 does not divide the model's 8 experts"), std::string::npos)
      << run.err;
}

}  // namespace
}  // namespace automodel::recipes

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

TEST(ExpertsTest, TheAuxLossChangesGradientsAndNotTheLoss) {
  const TemporaryDirectory folder;
  const std::vector<Json> plain = moe_records(folder.file("plain"), without_aux_loss(1));
  const std::vector<Json> with_aux =
      moe_records(folder.file("aux"), {1, {"--model.config.router_aux_loss_coef=0.1"}});
  ASSERT_EQ(plain.size(), with_aux.size());
  EXPECT_EQ(plain[0].at("loss").as_double(), with_aux[0].at("loss").as_double());
  EXPECT_NE(plain[0].at("grad_norm").as_double(), with_aux[0].at("grad_norm").as_double());
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
  const Spread spreads[] = {without_aux_loss(1), without_aux_loss(2, {"--distributed.ep_size=2"}),
                            without_aux_loss(4, {"--distributed.ep_size=2"}), without_aux_loss(2)};
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

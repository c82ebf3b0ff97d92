// Runs of models with experts beside each MLP: Gemma 4 and DiffusionGemma.
#include <gtest/gtest.h>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::Spread;
using test::TemporaryDirectory;

std::vector<Json> records_of(const std::string& folder, const std::vector<std::string>& program,
                             const Spread& spread) {
  std::vector<std::string> command = program;
  command.push_back("--moe_metrics.enabled=true");
  command.push_back("--step_scheduler.max_steps=2");
  command.push_back("--checkpoint.checkpoint_dir=" + folder);
  const test::ProgramResult run = test::run_program(test::on(spread, command));
  EXPECT_EQ(run.status, 0) << run.err;
  return test::read_records(path_join(folder, "training.jsonl"));
}

/// What tokens of all ranks chose is in the records, and an even choice on request.
void expect_loads(const std::vector<std::string>& program) {
  const TemporaryDirectory folder;
  const std::vector<Json> one = records_of(folder.file("one"), program, {1, {}});
  const std::vector<Json> two =
      records_of(folder.file("two"), program, {2, {"--distributed.ep_size=2"}});
  const std::vector<Json> even =
      records_of(folder.file("even"), program,
                 {2, {"--distributed.ep_size=2", "--model.backend.fake_balanced_gate=true"}});
  ASSERT_EQ(one.size(), 2u);
  ASSERT_EQ(two.size(), 2u);
  ASSERT_EQ(even.size(), 2u);
  EXPECT_GT(one[0].at("moe/cv_max").as_double(), 0.05);
  // Ranks have other micro-batches, with other padding.
  EXPECT_NEAR(two[0].at("moe/cv_mean").as_double(), one[0].at("moe/cv_mean").as_double(), 0.02);
  EXPECT_LT(even[0].at("moe/cv_max").as_double(), 0.01);
  EXPECT_NE(even[0].at("loss").as_double(), one[0].at("loss").as_double());
}

TEST(SideExpertsTest, RoutersOfGemma4CountTheirTokens) {
  expect_loads(
      {test::automodel_binary(), "run", test::source_file("recipes/smoke/mock_pretrain.yaml"),
       cat("--model.pretrained_model_name_or_path=", test::source_file("tests/golden/gemma4_moe")),
       "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained",
       "--model.config=none", "--dataset.vocab_size=128"});
}

TEST(SideExpertsTest, RoutersOfDiffusionGemmaCountTheirTokens) {
  expect_loads({test::automodel_binary(), "run",
                test::source_file("recipes/smoke/tiny_diffusion_gemma.yaml")});
}

}  // namespace
}  // namespace automodel::recipes

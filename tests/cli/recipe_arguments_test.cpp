// How a command line names a recipe and changes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "core/text.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::cli {
namespace {

using test::ProgramResult;
using test::TemporaryDirectory;
using testing::HasSubstr;

const char* const kSmoke = "recipes/smoke/tiny_llama_sft.yaml";

ProgramResult automodel(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), test::automodel_binary());
  return test::run_program(arguments);
}

/// However the recipe and the changes stand, all of these set one wrong value.
TEST(RecipeArgumentsTest, AValueBehindItsKeyIsNotTakenForTheRecipe) {
  const std::vector<std::vector<std::string>> forms = {
      {kSmoke, "--optimizer.lr", "-1"},
      {"--optimizer.lr", "-1", kSmoke},
      {"-c", kSmoke, "--optimizer.lr", "-1"},
      {"--optimizer.lr", "-1", "--config", kSmoke},
      {"--world-size", "1", "--optimizer.lr", "-1", "--optimizer.eps", "1e-7", kSmoke},
      {"optimizer.lr=-1", kSmoke},
      {"-c", kSmoke, "--optimizer.lr=1", "optimizer.lr=-1"},
      {"--wandb.enable", kSmoke, "--optimizer.lr", "-1"},
      {"--wandb.enable", "-c", kSmoke, "--optimizer.lr", "-1"},
      {cat("-c", kSmoke), "--optimizer.lr", "-1"},
      {kSmoke, "--wandb.enable", "--world-size", "1", "optimizer.lr=-1"},
      {"--wandb.enable", kSmoke, "optimizer.lr=-1"},
      {kSmoke, "--model.attn_implementation", "optimizer.lr=-1"}};
  for (std::vector<std::string> form : forms) {
    form.insert(form.begin(), "check");
    const ProgramResult run = automodel(form);
    EXPECT_EQ(run.status, 2) << join(form, " ");
    EXPECT_THAT(run.out, HasSubstr("command line: error: expected a number at least 0")) << run.err;
  }
}

TEST(RecipeArgumentsTest, AValueMayLookLikeAChangeOfNoSection) {
  const TemporaryDirectory folder;
  const ProgramResult run =
      automodel({"check", kSmoke, "--checkpoint.checkpoint_dir", "v.lr=1", "--optimizer.lr", "-1"});
  EXPECT_THAT(run.out, HasSubstr("command line: error: expected a number at least 0")) << run.err;
  EXPECT_THAT(run.out, HasSubstr(": 1 mistake")) << run.out;
}

TEST(RecipeArgumentsTest, ASignOfEqualityInItsPathLeavesARecipeARecipe) {
  const TemporaryDirectory folder;
  create_directories(folder.file("lr=1"));
  const std::string path = folder.write("lr=1/recipe", read_file(test::source_file(kSmoke)));
  const ProgramResult run = automodel({"check", path, "--optimizer.lr", "-1"});
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.out, HasSubstr("command line: error: expected a number at least 0")) << run.err;
}

/// The plan's batches are the run's, however the recipe says their sizes.
TEST(RecipeArgumentsTest, PlansCountTheTokensThatARunTrainsOn) {
  const auto plan_of = [](const std::string& recipe, const std::string& change) {
    const ProgramResult plan = automodel({"plan", test::source_file(recipe), change});
    EXPECT_EQ(plan.status, 0) << plan.err;
    return plan.out;
  };
  const std::string quickstart = "recipes/quickstart.yaml";
  EXPECT_THAT(plan_of(quickstart, "--packed_sequence.packed_sequence_size=512"),
              HasSubstr("8 sequences of 512 tokens"));
  for (const char* length : {"512", "0x200", "5_12"}) {
    EXPECT_THAT(plan_of(quickstart, cat("--dataset.seq_length=", length)),
                HasSubstr("8 sequences of 512 tokens"));
  }
  EXPECT_THAT(plan_of("recipes/llm_benchmark/qwen3_moe_tiny.yaml", "--dataset.batch_size=64"),
              HasSubstr("4 sequences of 64 tokens"));
}

TEST(RecipeArgumentsTest, AChangeInsideAConfigurationKeepsTheRestOfIt) {
  const std::string recipe = test::source_file("recipes/smoke/tiny_diffusion_gemma.yaml");
  const ProgramResult right =
      automodel({"check", recipe, "--model.config.text_config.rms_norm_eps=1e-5"});
  EXPECT_EQ(right.status, 0) << right.out;
  const ProgramResult wrong =
      automodel({"check", recipe, "--model.config.text_config.rms_nrom_eps=1e-5"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.out,
              HasSubstr("unknown key 'rms_nrom_eps': no key of text_config in the model's "
                        "config.json; did you mean 'rms_norm_eps'?"));
}

TEST(RecipeArgumentsTest, AModelWhoseWeightsAreNotLoadedNeedsNone) {
  const TemporaryDirectory folder;
  const ProgramResult run = automodel(
      {"run", kSmoke, "--model._target_=NeMoAutoModelForCausalLM.from_pretrained",
       "--model.config=none", "--model.torch_dtype=auto", "--model.load_base_model=false",
       cat("--model.pretrained_model_name_or_path=", test::source_file("configs/tiny/llama")),
       "--step_scheduler.max_steps=1", cat("--checkpoint.checkpoint_dir=", folder.path())});
  EXPECT_EQ(run.status, 0) << run.out << run.err;
}

TEST(RecipeArgumentsTest, ASectionMayHaveAnotherCommandsOptionForAName) {
  const ProgramResult run = automodel({"check", kSmoke, "--model={config: none}"});
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.out + run.err, testing::Not(HasSubstr("has no option")));
}

}  // namespace
}  // namespace automodel::cli

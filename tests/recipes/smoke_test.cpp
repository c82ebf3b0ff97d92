#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "recipes/runs.h"
#include "support/program.h"

namespace automodel::recipes {
namespace {

using ::testing::HasSubstr;

/// The commands that a recipe's header gives, without the program's name and the folder they save
/// to.
std::vector<std::vector<std::string>> commands_of(const std::string& recipe) {
  std::vector<std::vector<std::string>> commands;
  for (const std::string& line : split(read_file(test::source_file(recipe)), '\n')) {
    const size_t begin = line.find("automodel run ");
    if (!line.starts_with('#') || begin == std::string::npos) continue;
    std::vector<std::string> words;
    for (const std::string& word : split(line.substr(begin), ' ')) {
      if (!word.empty() && !word.starts_with("--checkpoint.checkpoint_dir")) words.push_back(word);
    }
    words.erase(words.begin());
    commands.push_back(std::move(words));
  }
  return commands;
}

/// Runs a command with its results in a folder of the test's and returns its steps.
std::vector<Json> train(const std::vector<std::string>& command, const std::string& folder,
                        const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {test::automodel_binary()};
  arguments.insert(arguments.end(), command.begin(), command.end());
  arguments.push_back(cat("--checkpoint.checkpoint_dir=", folder));
  arguments.insert(arguments.end(), more.begin(), more.end());
  const test::ProgramResult run = test::run_program(arguments);
  EXPECT_EQ(run.status, 0) << join(command, " ") << "\n" << run.err;
  return test::read_records(cat(folder, "/training.jsonl"));
}

void expect_finite(const std::vector<Json>& steps) {
  for (const Json& step : steps) {
    EXPECT_TRUE(std::isfinite(step.at("loss").as_double())) << step.dump();
    EXPECT_GT(step.at("grad_norm").as_double(), 0) << step.dump();
  }
}

TEST(SmokeTest, EveryRecipeTrainsByTheCommandsOfItsHeader) {
  std::set<std::string> strategies;
  bool has_policy_target = false;
  for (const std::string& name : list_directory(test::source_file("recipes/smoke"))) {
    const std::string recipe = cat("recipes/smoke/", name);
    const std::string text = read_file(test::source_file(recipe));
    has_policy_target |=
        text.find("_target_: torch.distributed.fsdp.MixedPrecisionPolicy") != std::string::npos;
    for (const char* strategy : {"fsdp2", "ddp", "megatron_fsdp"}) {
      if (text.find(cat("strategy: ", strategy)) != std::string::npos) strategies.insert(strategy);
    }
    const auto commands = commands_of(recipe);
    EXPECT_FALSE(commands.empty()) << recipe;
    const bool is_saved = text.find("save_consolidated: final") != std::string::npos;
    for (const std::vector<std::string>& command : commands) {
      SCOPED_TRACE(join(command, " "));
      const test::TemporaryDirectory folder;
      const std::vector<Json> steps = train(command, folder.path());
      const size_t at = text.find("max_steps: ");
      ASSERT_NE(at, std::string::npos);
      EXPECT_EQ(steps.size(), std::stoul(text.substr(at + 11)));
      expect_finite(steps);
      EXPECT_EQ(path_exists(folder.file("LATEST/model/consolidated/config.json")), is_saved);
    }
  }
  EXPECT_EQ(strategies, (std::set<std::string>{"ddp", "fsdp2", "megatron_fsdp"}));
  EXPECT_TRUE(has_policy_target) << "one recipe writes its mixed-precision policy by _target_";
}

TEST(SmokeTest, TheQuickstartLearnsSavesAndExports) {
  const test::TemporaryDirectory folder;
  const std::vector<Json> steps =
      train({"run", "recipes/quickstart.yaml"}, folder.path(),
            {"--step_scheduler.max_steps=6", "--step_scheduler.ckpt_every_steps=3",
             "--step_scheduler.val_every_steps=3", "--lr_scheduler.lr_warmup_steps=1",
             "--validation_dataset.limit_dataset_samples=8"});
  ASSERT_EQ(steps.size(), 6u);
  expect_finite(steps);
  EXPECT_LT(steps.back().at("loss").as_double(), steps.front().at("loss").as_double() - 0.5);
  EXPECT_EQ(test::read_records(folder.file("validation.jsonl")).size(), 2u);
  EXPECT_TRUE(path_exists(folder.file("LATEST/model/consolidated/config.json")));
}

TEST(SmokeTest, TheChatQuickstartLearnsWhatTheAssistantWrites) {
  const test::TemporaryDirectory folder;
  const std::vector<Json> steps =
      train({"run", "recipes/llm_finetune/chat_quickstart.yaml"}, folder.path(),
            {"--step_scheduler.max_steps=6", "--step_scheduler.ckpt_every_steps=3",
             "--step_scheduler.val_every_steps=3", "--lr_scheduler.lr_warmup_steps=1"});
  ASSERT_EQ(steps.size(), 6u);
  expect_finite(steps);
  EXPECT_LT(steps.back().at("loss").as_double(), steps.front().at("loss").as_double() - 0.5);
  EXPECT_EQ(test::read_records(folder.file("validation.jsonl")).size(), 2u);
}

TEST(SmokeTest, TheFunctionCallsQuickstartLearnsToCall) {
  const test::TemporaryDirectory folder;
  const std::vector<Json> steps =
      train({"run", "recipes/llm_finetune/function_calls_quickstart.yaml"}, folder.path(),
            {"--step_scheduler.max_steps=6", "--step_scheduler.ckpt_every_steps=3",
             "--step_scheduler.val_every_steps=3", "--lr_scheduler.lr_warmup_steps=1"});
  ASSERT_EQ(steps.size(), 6u);
  expect_finite(steps);
  EXPECT_LT(steps.back().at("loss").as_double(), steps.front().at("loss").as_double() - 0.5);
  EXPECT_EQ(test::read_records(folder.file("validation.jsonl")).size(), 2u);
}

TEST(SmokeTest, TheTokenFilesQuickstartLearnsTheSameOnOneRankAndOnTwo) {
  std::vector<std::vector<Json>> runs;
  for (const char* ranks : {"1", "2"}) {
    const test::TemporaryDirectory folder;
    runs.push_back(train(
        {"run", "recipes/llm_pretrain/token_files_quickstart.yaml", "--nproc-per-node", ranks},
        folder.path(),
        {"--step_scheduler.max_steps=4", "--step_scheduler.ckpt_every_steps=2",
         "--step_scheduler.val_every_steps=2", "--lr_scheduler.lr_warmup_steps=1",
         "--validation_dataset.num_val_samples=16"}));
    ASSERT_EQ(runs.back().size(), 4u);
    expect_finite(runs.back());
    EXPECT_EQ(test::read_records(folder.file("validation.jsonl")).size(), 2u);
  }
  for (size_t i = 0; i < 4; ++i) {
    // Two ranks take the two halves of what one rank takes, micro-batch by micro-batch.
    EXPECT_NEAR(runs[0][i].at("loss").as_double(), runs[1][i].at("loss").as_double(), 1e-5);
    EXPECT_EQ(runs[0][i].at("num_label_tokens").as_int(), 16 * 128);
  }
}

TEST(SmokeTest, TheAgentTracesQuickstartLearns) {
  const test::TemporaryDirectory folder;
  const std::vector<Json> steps =
      train({"run", "recipes/llm_finetune/agent_traces_quickstart.yaml"}, folder.path(),
            {"--step_scheduler.max_steps=6", "--lr_scheduler.lr_warmup_steps=1"});
  ASSERT_EQ(steps.size(), 6u);
  expect_finite(steps);
  EXPECT_LT(steps.back().at("loss").as_double(), steps.front().at("loss").as_double() - 0.5);
}

}  // namespace
}  // namespace automodel::recipes

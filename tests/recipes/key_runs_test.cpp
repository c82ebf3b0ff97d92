#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "config/load.h"
#include "recipes/read/read_recipe.h"
#include "recipes/read/recipe.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

TEST(KeyEffectsTest, TemplatesAndEndTokensThatDoNothingAreWarnedOf) {
  const TemporaryDirectory folder;
  const std::string plain = folder.file("plain");
  std::filesystem::copy(test::source_file("configs/quickstart_tokenizer"), plain);
  Json config = Json::parse_file(plain + "/tokenizer_config.json");
  config.erase("chat_template");
  write_file_atomic(plain + "/tokenizer_config.json", config.dump());
  const auto warnings = [&](const std::string& tokenizer, const char* uses_template) {
    const ProgramResult result = test::run_program(
        {test::automodel_binary(), "check", test::source_file("recipes/smoke/tiny_llama_sft.yaml"),
         cat("--dataset.tokenizer.pretrained_model_name_or_path=", tokenizer),
         cat("--dataset.use_hf_chat_template=", uses_template),
         "--dataset.tokenizer.add_eos_token=true"});
    EXPECT_EQ(result.status, 0) << result.err;
    return cat(result.out, result.err);
  };
  const auto is_without_template = HasSubstr(cat(
      "'use_hf_chat_template' has no effect: the tokenizer of ", plain, " has no chat template"));
  const auto is_without_end = HasSubstr("'add_eos_token' has no effect here");
  const std::string templated = test::source_file("configs/quickstart_tokenizer");
  EXPECT_THAT(warnings(plain, "true"), is_without_template);
  EXPECT_THAT(warnings(templated, "true"),
              AllOf(Not(HasSubstr("use_hf_chat_template")), is_without_end));
  EXPECT_THAT(warnings(templated, "false"), Not(HasSubstr("has no effect")));
}

TEST(KeyEffectsTest, CheckpointKeysSayWhatIsKept) {
  const TemporaryDirectory folder;
  const std::vector<std::string> every_step = {"--step_scheduler.ckpt_every_steps=1",
                                               "--step_scheduler.max_steps=3",
                                               "--checkpoint.save_consolidated=false"};
  const auto run = [&](const std::string& place, std::vector<std::string> more) {
    more.insert(more.end(), every_step.begin(), every_step.end());
    const ProgramResult result = test::run_program(test::smoke_run(folder.file(place), more));
    EXPECT_EQ(result.status, 0) << result.err;
    return names_in(folder.file(place));
  };
  EXPECT_THAT(run("all", {}), testing::IsSupersetOf({"epoch_0_step_0", "epoch_0_step_1",
                                                     "epoch_0_step_2", "training.jsonl"}));
  const auto one = run("one", {"--checkpoint.max_recent_checkpoints=1"});
  EXPECT_THAT(one, testing::Contains("epoch_0_step_2"));
  EXPECT_THAT(one, testing::Not(testing::Contains("epoch_0_step_0")));
  EXPECT_THAT(run("none", {"--checkpoint.enabled=false"}),
              testing::UnorderedElementsAre(".lock", "training.jsonl", "run.json", "events.jsonl"));
  const auto exports = [&](const std::string& place, const std::string& when) {
    const std::vector<std::string> more = {"--step_scheduler.ckpt_every_steps=1",
                                           "--step_scheduler.max_steps=2",
                                           cat("--checkpoint.save_consolidated=", when)};
    EXPECT_EQ(test::run_program(test::smoke_run(folder.file(place), more)).status, 0);
    std::vector<bool> found;
    for (const char* step : {"epoch_0_step_0", "epoch_0_step_1"}) {
      found.push_back(path_exists(folder.file(cat(place, "/", step, "/model/consolidated"))));
    }
    return found;
  };
  EXPECT_THAT(exports("no_export", "false"), testing::ElementsAre(false, false));
  EXPECT_THAT(exports("last", "final"), testing::ElementsAre(false, true));
  EXPECT_THAT(exports("each", "every"), testing::ElementsAre(true, true));
}

TEST(KeyEffectsTest, AContinuedRunTakesTheScheduleThatItIsTold) {
  const TemporaryDirectory folder;
  std::vector<std::string> first = {
      "--step_scheduler.max_steps=2", "--step_scheduler.ckpt_every_steps=2",
      "--lr_scheduler.lr_decay_style=constant", "--lr_scheduler.lr_warmup_steps=0"};
  std::string err;
  const auto next = [&](const std::string& place, std::vector<std::string> more) {
    EXPECT_EQ(test::run_program(test::smoke_run(folder.file(place), first)).status, 0);
    more.insert(more.end(),
                {"--step_scheduler.max_steps=3", "--optimizer.lr=5e-4",
                 "--lr_scheduler.lr_decay_style=constant", "--lr_scheduler.lr_warmup_steps=0"});
    const ProgramResult result = test::run_program(test::smoke_run(folder.file(place), more));
    EXPECT_EQ(result.status, 0) << result.err;
    err = result.err;
    return read_records(folder.file(place + "/training.jsonl")).back().at("lr").as_double();
  };
  EXPECT_EQ(next("saved", {}), 1e-3);
  EXPECT_THAT(
      err, testing::HasSubstr(
               "the checkpoint's learning-rate schedule goes on, and the recipe's has no effect: "
               "lr_scheduler.lr_decay_steps 3 (the checkpoint's: 2), optimizer.lr 5e-04 (the "
               "checkpoint's: 0.001); lr_scheduler.override_opt_param_scheduler: true takes the "
               "recipe's"));
  EXPECT_EQ(next("told", {"--lr_scheduler.override_opt_param_scheduler=true"}), 5e-4);
  EXPECT_EQ(err.find("learning-rate schedule"), std::string::npos) << err;
  EXPECT_EQ(next("own", {"--lr_scheduler.use_checkpoint_opt_param_scheduler=false"}), 5e-4);
  // A rate of its own is no share of the optimizer's.
  first.emplace_back("--lr_scheduler.min_lr=1e-4");
  next("shares", {});
  EXPECT_THAT(err, testing::HasSubstr("lr_scheduler.min_lr 5e-06 (the checkpoint's: 1e-04)"));
}

TEST(KeyEffectsTest, AContinuedRunSaysWhichArgumentsOfTheOptimizerAreOthers) {
  const TemporaryDirectory folder;
  const auto run = [&](std::vector<std::string> more) {
    more.emplace_back("--step_scheduler.ckpt_every_steps=2");
    const ProgramResult result = test::run_program(test::smoke_run(folder.file("run"), more));
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err;
  };
  run({"--step_scheduler.max_steps=2"});
  const std::string same = run({"--step_scheduler.max_steps=3"});
  EXPECT_EQ(same.find("the checkpoint's"), std::string::npos) << same;
  // Without a section lr_scheduler too.
  const std::string other =
      run({"--step_scheduler.max_steps=4", "--optimizer.lr=5e-4", "--optimizer.betas=[0.5, 0.6]"});
  EXPECT_THAT(other, testing::HasSubstr("goes on, and the recipe's has no effect: "));
  EXPECT_THAT(other, testing::HasSubstr("optimizer.lr 5e-04 (the checkpoint's: 0.001)"));
  EXPECT_THAT(other, testing::HasSubstr("the checkpoint's optimizer was AdamW (lr 0.001"));
  EXPECT_THAT(other, testing::HasSubstr("the recipe's is AdamW (lr 5e-04, betas 0.5 0.6"));
  EXPECT_EQ(read_records(folder.file("run/training.jsonl")).back().at("lr").as_double(), 1e-3);
}

TEST(KeyEffectsTest, GradientsAreScaledInTheScheduleWhenAsked) {
  const TemporaryDirectory folder;
  const auto norm = [&](const std::string& place, const std::string& scales) {
    const ProgramResult result = test::run_program(
        {test::automodel_binary(), "run", test::source_file("recipes/smoke/pipeline_pretrain.yaml"),
         "--nproc-per-node=2", "--step_scheduler.max_steps=1",
         cat("--checkpoint.checkpoint_dir=", folder.file(place)),
         cat("--distributed.pipeline.scale_grads_in_schedule=", scales)});
    EXPECT_EQ(result.status, 0) << result.err;
    return read_records(folder.file(place + "/training.jsonl")).at(0).at("grad_norm").as_double();
  };
  const double whole = norm("whole", "false");
  EXPECT_NEAR(norm("scaled", "true") * 4, whole, 1e-5 * whole);  // micro-batches of one of four
}

TEST(KeyEffectsTest, HiddenStatesBetweenStagesHaveThePipelinesDtype) {
  const TemporaryDirectory folder;
  const auto loss = [&](const std::string& place, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {test::automodel_binary(),
                                          "run",
                                          test::source_file("recipes/smoke/pipeline_pretrain.yaml"),
                                          "--nproc-per-node=2",
                                          "--step_scheduler.max_steps=1",
                                          cat("--checkpoint.checkpoint_dir=", folder.file(place))};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = test::run_program(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return read_records(folder.file(place + "/training.jsonl")).at(0).at("loss").as_double();
  };
  const double own = loss("own", {});
  EXPECT_EQ(loss("wide", {"--distributed.pipeline.dtype=float32"}), own);
  const double narrow = loss("narrow", {"--distributed.pipeline.dtype=bfloat16"});
  EXPECT_NE(narrow, own);
  EXPECT_NEAR(narrow, own, 1e-2 * own);  // bfloat16 keeps eight bits
}

TEST(KeyEffectsTest, APeakGivesUtilisation) {
  const TemporaryDirectory folder;
  const std::vector<std::string> more = {"--mfu.peak_tflops=0.001", "--step_scheduler.max_steps=1",
                                         "--checkpoint.enabled=false"};
  ASSERT_EQ(test::run_program(test::smoke_run(folder.file("run"), more)).status, 0);
  EXPECT_GT(read_records(folder.file("run/training.jsonl")).at(0).at("mfu").as_double(), 0);
}

/// The messages about a recipe whose model and tokenizer are in a cache.
std::string findings_with(const std::vector<std::string>& changes) {
  const config::Document document =
      config::load_recipe(test::source_file("recipes/smoke/tiny_llama_sft.yaml"), changes);
  config::Diagnostics diagnostics(document.sources);
  read_recipe(document.root, diagnostics);
  std::string all;
  for (const auto& finding : diagnostics.findings()) all += diagnostics.render(finding) + "\n";
  return all;
}

TEST(KeyEffectsTest, ACacheAndARevisionSayWhichFolderIsMeant) {
  const TemporaryDirectory folder;
  const std::string repository = folder.file("cache/models--some--model/snapshots/");
  for (const char* commit : {"first", "second"}) {
    std::filesystem::create_directories(repository + commit);
    std::filesystem::copy(test::source_file("tests/recipes/data/tiny_llama"), repository + commit,
                          std::filesystem::copy_options::recursive);
  }
  std::vector<std::string> changes = {
      "--model.pretrained_model_name_or_path=some/model",
      cat("--model.cache_dir=", folder.file("cache")),
      "--dataset.tokenizer.pretrained_model_name_or_path=some/model",
      cat("--dataset.tokenizer.cache_dir=", folder.file("cache"))};
  const std::string model_missing = "'some/model' is not in the local Hugging Face cache (";
  const std::string tokenizer_missing = "'some/model' is not in the local Hugging Face cache [";
  EXPECT_THAT(findings_with(changes), HasSubstr(model_missing + folder.file("cache")));
  EXPECT_THAT(findings_with(changes), HasSubstr(tokenizer_missing));
  changes.push_back("--model.revision=second");
  EXPECT_THAT(findings_with(changes), testing::Not(HasSubstr(model_missing)));
  EXPECT_THAT(findings_with(changes), HasSubstr(tokenizer_missing));
  changes.push_back("--dataset.tokenizer.revision=first");
  EXPECT_THAT(findings_with(changes), testing::Not(HasSubstr(tokenizer_missing)));
  changes[1] = "--model.cache_dir=/nowhere";
  EXPECT_THAT(findings_with(changes), HasSubstr(model_missing + "/nowhere"));
}

}  // namespace
}  // namespace automodel::recipes

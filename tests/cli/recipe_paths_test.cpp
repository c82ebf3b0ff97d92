#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/file.h"
#include "core/text.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::cli {
namespace {

using test::ProgramResult;
using test::TemporaryDirectory;
using testing::HasSubstr;

/// The program, started in a folder.
ProgramResult automodel_in(const std::string& folder, const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", folder,
                                  test::automodel_binary()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return test::run_program(all);
}

std::vector<std::string> recipes_below(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// `check` and `plan` say of every recipe what they say in the repository.
void expect_right_from(const std::string& folder, const std::string& recipes) {
  const std::vector<std::string> paths = recipes_below(recipes);
  EXPECT_GE(paths.size(), 10u) << recipes;
  for (const std::string& path : paths) {
    if (path.ends_with("own_folder_own_jsonl.yaml")) continue;  // names files of the user's
    if (path.ends_with("quickstart_lora.yaml")) continue;       // begins with a run's checkpoint
    const ProgramResult run = automodel_in(folder, {"check", path});
    EXPECT_EQ(run.status, 0) << path << "\n" << run.out << run.err;
    const bool needs_hub =
        path.ends_with("diffusiongemma_26b_gsm8k.yaml") || path.ends_with("llada_8b_gsm8k.yaml");
    EXPECT_EQ(run.out.find("cache") != std::string::npos, needs_hub) << run.out;
    if (needs_hub) continue;  // a plan needs its config.json
    const ProgramResult plan = automodel_in(folder, {"plan", path});
    EXPECT_EQ(plan.status, 0) << path << "\n" << plan.out << plan.err;
  }
}

TEST(RecipePathsTest, ShippedRecipesAreRightFromAnyFolder) {
  const TemporaryDirectory elsewhere;
  expect_right_from(elsewhere.path(), test::source_file("recipes"));
}

TEST(RecipePathsTest, InstalledRecipesAreRightFromAnyFolder) {
  const TemporaryDirectory elsewhere;
  const std::string build = parent_path(test::automodel_binary());
  const ProgramResult install =
      test::run_program({"/usr/bin/env", "cmake", "--install", build, "--component", "data",
                         "--prefix", elsewhere.file("installed")});
  ASSERT_EQ(install.status, 0) << install.err;
  const std::string recipes = elsewhere.file("installed/share/automodel/recipes");
  expect_right_from(elsewhere.path(), recipes);
  const ProgramResult run = automodel_in(
      elsewhere.path(),
      {"run", path_join(recipes, "smoke/tiny_llama_sft.yaml"), "--step_scheduler.max_steps=1"});
  EXPECT_EQ(run.status, 0) << run.err;
  // What is written is below the current folder.
  EXPECT_TRUE(is_directory(elsewhere.file("checkpoints"))) << run.out;
  EXPECT_FALSE(path_exists(elsewhere.file("installed/share/automodel/checkpoints")));
}

/// A recipe of a tiny model on the rows of `data`, in a folder of the project.
std::string write_recipe(const TemporaryDirectory& project, const std::string& config,
                         const std::string& data, const std::string& folder = "recipes/mine") {
  return project.write(
      path_join(folder, "recipe.yaml"),
      cat("recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
          "step_scheduler: {global_batch_size: 4, local_batch_size: 2, max_steps: 1}\n"
          "dist_env: {backend: gloo}\n"
          "model:\n"
          "  _target_: NeMoAutoModelForCausalLM.from_config\n"
          "  config: ",
          config,
          "\n"
          "distributed: {strategy: ddp}\n"
          "dataset:\n"
          "  _target_: ColumnMappedTextInstructionDataset\n"
          "  path_or_dataset_id: ",
          data,
          "\n"
          "  column_mapping: {question: question, answer: answer}\n"
          "  tokenizer: ",
          test::source_file("configs/quickstart_tokenizer"),
          "\n"
          "optimizer: {_target_: torch.optim.AdamW, lr: 1.0e-3}\n"
          "checkpoint: {enabled: false}\n"));
}

constexpr const char* kRow = "{\"question\": \"q\", \"answer\": \"a\"}\n";

void add_project_files(const TemporaryDirectory& project) {
  project.write("data/rows.jsonl", kRow);
  project.write("configs/own/config.json",
                read_file(test::source_file("configs/tiny/llama/config.json")));
}

TEST(RecipePathsTest, TheHomeOfUpstreamsRecipesHoldsTheirExamples) {
  const TemporaryDirectory project, elsewhere;
  add_project_files(project);
  const std::string folder = "examples/llm_finetune/tiny";
  const std::string recipe =
      write_recipe(project, cat(folder, "/own"), cat(folder, "/rows.jsonl"), folder);
  EXPECT_EQ(automodel_in(elsewhere.path(), {"check", recipe}).status, 2);
  project.write(cat(folder, "/rows.jsonl"), kRow);
  project.write(cat(folder, "/own/config.json"),
                read_file(test::source_file("configs/tiny/llama/config.json")));
  const ProgramResult run = automodel_in(elsewhere.path(), {"check", recipe});
  EXPECT_EQ(run.status, 0) << run.out << run.err;
}

TEST(RecipePathsTest, TheCurrentFolderComesBeforeTheRecipesHome) {
  const TemporaryDirectory project, elsewhere;
  add_project_files(project);
  const std::string recipe = write_recipe(project, "configs/own", "data/rows.jsonl");
  EXPECT_EQ(automodel_in(elsewhere.path(), {"check", recipe}).status, 0);
  // A file of the same name that is not fit for the recipe.
  elsewhere.write("data/rows.jsonl", "{\"text\": \"t\"}\n");
  const ProgramResult there = automodel_in(elsewhere.path(), {"check", recipe});
  EXPECT_EQ(there.status, 2);
  EXPECT_THAT(there.out, HasSubstr("data/rows.jsonl: no column 'question'"));
  EXPECT_THAT(there.out, HasSubstr(cat("note: the current folder's is meant, not ",
                                       project.file("data/rows.jsonl"))));
}

/// Whichever key names the base, its name as written tells checkpoints apart.
TEST(RecipePathsTest, ARunGoesOnFromAnotherFolderThanItBeganIn) {
  const TemporaryDirectory project, elsewhere;
  add_project_files(project);
  const std::string rows = "{\"question\": \"what is it\", \"answer\": \"a long answer\"}\n";
  project.write("data/rows.jsonl", cat(rows, rows, rows, rows, rows, rows, rows, rows));
  const auto run = [&](const std::string& folder, const std::string& recipe, const char* place,
                       std::vector<std::string> changes) {
    changes.insert(changes.begin(), {"run", recipe, "--checkpoint.enabled=true",
                                     cat("--checkpoint.checkpoint_dir=", project.file(place))});
    const ProgramResult result = automodel_in(folder, changes);
    EXPECT_EQ(result.status, 0) << result.out << result.err;
  };
  run(project.path(), write_recipe(project, "configs/own", "data/rows.jsonl"), "first", {});
  std::filesystem::copy(project.file("first/LATEST/model/consolidated"), project.file("base"));
  for (const char* config : {"base",
                             "{_target_: transformers.AutoConfig.from_pretrained, "
                             "pretrained_model_name_or_path: base}"}) {
    const std::string recipe = write_recipe(project, config, "data/rows.jsonl");
    const std::string place = cat("run of ", std::string_view(config).size());
    run(project.path(), recipe, place.c_str(), {"--model.load_base_model=true"});
    run(elsewhere.path(), recipe, place.c_str(),
        {"--model.load_base_model=true", "--step_scheduler.max_steps=2"});
  }
}

TEST(RecipePathsTest, EveryKindOfPathIsLookedForInTheRecipesHome) {
  const TemporaryDirectory project, elsewhere;
  add_project_files(project);
  std::filesystem::copy(test::source_file("configs/quickstart_tokenizer"), project.file("words"));
  project.write("schedule.csv",
                read_file(test::source_file("tests/recipes/data/schedule_deadlock.csv")));
  const std::string recipe = write_recipe(project, "configs/own", "[data/rows.jsonl]");
  const std::string text = replace_all(
      read_file(recipe), test::source_file("configs/quickstart_tokenizer"),
      "{pretrained_model_name_or_path: words}\nvalidation_dataset:\n"
      "  _target_: automodel.TextFileDataset\n  path: [data/rows.jsonl]\n  text_column: question\n"
      "  tokenizer: words");
  project.write("recipes/mine/recipe.yaml",
                replace_all(text, "{strategy: ddp}",
                            "{strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule_csv: "
                            "schedule.csv, pp_microbatch_size: 1}}"));
  const ProgramResult run = automodel_in(elsewhere.path(), {"check", recipe});
  // All files are found: what is left is what the schedule itself says.
  EXPECT_THAT(run.out, HasSubstr("schedule.csv: a deadlock")) << run.out;
  EXPECT_THAT(run.out, HasSubstr(": 1 mistake\n"));
}

TEST(RecipePathsTest, WhatIsNowhereNamesBothPlaces) {
  const TemporaryDirectory project, elsewhere;
  add_project_files(project);
  const std::string places =
      cat("; looked for in ", elsewhere.path(), " and in ", project.path(), " [");
  const auto said = [&](const std::string& config, const std::string& data) {
    return automodel_in(elsewhere.path(), {"check", write_recipe(project, config, data)}).out;
  };
  EXPECT_THAT(said("a/b/c", "data/rows.jsonl"),
              HasSubstr(cat("error: no such folder: a/b/c", places, "model.config]")));
  EXPECT_THAT(said("configs/own", "data/rowz.jsonl"),
              HasSubstr(cat("error: dataset file data/rowz.jsonl does not exist", places,
                            "dataset.path_or_dataset_id]")));
  // A plan says so of what could be a hub's name too.
  const ProgramResult plan =
      automodel_in(elsewhere.path(), {"plan", write_recipe(project, "configs/other", "x")});
  EXPECT_EQ(plan.status, 3);
  EXPECT_THAT(plan.err, HasSubstr(cat("; looked for in ", elsewhere.path(), " and in ")));
}

TEST(RecipePathsTest, ArgumentsMeanTheCurrentFolderOnly) {
  const TemporaryDirectory project, elsewhere;
  add_project_files(project);
  const std::string recipe = write_recipe(project, "configs/own", "nothing.jsonl");
  const std::vector<std::string> arguments = {"check", recipe,
                                              "--dataset.path_or_dataset_id=data/rows.jsonl"};
  const ProgramResult there = automodel_in(elsewhere.path(), arguments);
  EXPECT_EQ(there.status, 2);
  EXPECT_THAT(there.out, HasSubstr("dataset file data/rows.jsonl does not exist [dataset."));
  EXPECT_EQ(automodel_in(project.path(), arguments).status, 0);
}

TEST(RecipePathsTest, AFileOutsideOfAFolderOfRecipesHasItsOwnFolder) {
  const TemporaryDirectory project, elsewhere;
  add_project_files(project);
  const std::string recipe = write_recipe(project, "configs/own", "data/rows.jsonl");
  std::filesystem::rename(recipe, project.file("mine.yaml"));
  const ProgramResult run = automodel_in(elsewhere.path(), {"check", project.file("mine.yaml")});
  EXPECT_EQ(run.status, 0) << run.out;
}

}  // namespace
}  // namespace automodel::cli

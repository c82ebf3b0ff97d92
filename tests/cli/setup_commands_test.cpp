#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "support/program.h"
#include "support/served_program.h"
#include "support/temporary_directory.h"

namespace automodel::cli {
namespace {

using test::ProgramResult;
using test::source_file;
using test::TemporaryDirectory;
using testing::HasSubstr;

ProgramResult automodel(std::vector<std::string> arguments,
                        const std::vector<std::string>& environment = {}) {
  arguments.insert(arguments.begin(), test::automodel_binary());
  return test::run_program(arguments, environment);
}

/// "70.6B", "1.57M", "460K": a number in three digits.
std::string short_number(double value) {
  const char* units[] = {"", "K", "M", "B"};
  size_t unit = 0;
  for (; value >= 1000; value /= 1000) ++unit;
  std::string text = format_fixed(value, value < 10 ? 2 : value < 100 ? 1 : 0);
  return cat(text, units[unit]);
}

TEST(ShippedRecipesCommandTest, SizesAndFamiliesAreWhatThePlanCounts) {
  const Json list = Json::parse(automodel({"ls", "--json"}).out, "ls");
  test::ServedProgram program;
  size_t num_planned = 0;
  for (const Json& recipe : list.as_array()) {
    std::vector<std::string> arguments = {test::automodel_binary(), "plan",
                                          recipe.at("path").as_string(), "--json"};
    if (recipe.at("name").as_string() == "quickstart_lora") {  // its model is another run's
      arguments.push_back(cat("--model.pretrained_model_name_or_path=",
                              test::source_file("configs/quickstart_llama")));
    }
    const ProgramResult plan = program.run(arguments);
    if (plan.status != 0) continue;  // the model is on the hub or of the user
    ++num_planned;
    const Json planned = Json::parse(plan.out, "plan");
    const auto parameters = static_cast<double>(planned.at("num_parameters").as_int());
    EXPECT_EQ(recipe.at("size").as_string(), cat(short_number(parameters), " parameters"))
        << recipe.at("name").as_string();
    const std::string family = replace_all(recipe.at("family").as_string(), " ", "");
    EXPECT_EQ(to_lower(planned.at("architecture").as_string()).find(to_lower(family)), 0u)
        << recipe.at("name").as_string();
  }
  EXPECT_GE(num_planned, list.size() - 3);
}

TEST(ShippedRecipesCommandTest, WordsFilterAndNoneFoundIsAnError) {
  const ProgramResult moe = automodel({"ls", "moe", "BENCHMARK"});
  EXPECT_EQ(moe.status, 0) << moe.err;
  EXPECT_THAT(moe.out, HasSubstr("\nllm_benchmark/qwen3_moe_tiny "));
  EXPECT_EQ(split(moe.out, '\n').size(), 3u) << moe.out;
  const ProgramResult none = automodel({"ls", "moe", "poetry"});
  EXPECT_EQ(none.status, 2);
  EXPECT_EQ(none.err, "no shipped recipe has 'moe' and 'poetry'\n");
}

TEST(ShippedRecipesCommandTest, EveryCopyIsRightFromAnyFolder) {
  const TemporaryDirectory folder;
  test::ServedProgram program;
  const Json list = Json::parse(automodel({"ls", "--json"}).out, "ls");
  for (const Json& recipe : list.as_array()) {
    const std::string& name = recipe.at("name").as_string();
    const std::string copy = folder.file(replace_all(name, "/", "_") + ".yaml");
    const ProgramResult run = program.run({test::automodel_binary(), "cp", name, copy});
    ASSERT_EQ(run.status, 0) << run.err;
    // One names files of the user's, one begins with a run's checkpoint.
    const bool is_ready = name != "llm_finetune/own_folder_own_jsonl" && name != "quickstart_lora";
    // From elsewhere, so that no path is right by the current folder.
    const ProgramResult there = test::run_program(
        {"/bin/sh", "-c", "cd / && exec \"$@\"", "sh", test::automodel_binary(), "check", copy});
    EXPECT_EQ(there.status, is_ready ? 0 : 2) << name << "\n" << there.out << there.err;
  }
}

TEST(ShippedRecipesCommandTest, ACopyNeverReplacesAFile) {
  const TemporaryDirectory folder;
  ASSERT_EQ(automodel({"cp", "mock_pretrain", folder.path()}).status, 0);
  const std::string copy = folder.file("mock_pretrain.yaml");
  folder.write("mock_pretrain.yaml", "mine");
  const ProgramResult again = automodel({"cp", "mock_pretrain", folder.path()});
  EXPECT_EQ(again.status, 2);
  EXPECT_EQ(again.err, cat(copy, " is there already; give another name, or remove it first\n"));
  EXPECT_EQ(read_file(copy), "mine");
}

TEST(ShippedRecipesCommandTest, AnInstalledProgramHasItsOwn) {
  const TemporaryDirectory folder;
  const std::string build = parent_path(test::automodel_binary());
  const ProgramResult install =
      test::run_program({"/usr/bin/env", "cmake", "--install", build, "--component", "data",
                         "--prefix", folder.file("was")});
  ASSERT_EQ(install.status, 0) << install.err;
  // The program beside it, as the other component lays it; all of it moved afterwards.
  create_directories(folder.file("was/bin"));
  for (const char* name : {"automodel", "automodel-main"}) {
    ASSERT_EQ(test::run_program({"/bin/cp", path_join(build, name), folder.file("was/bin")}).status,
              0);
  }
  rename_path(folder.file("was"), folder.file("is"));
  const ProgramResult run = test::run_program({folder.file("is/bin/automodel"), "ls", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json list = Json::parse(run.out, "ls");
  EXPECT_GE(list.size(), 20u);
  EXPECT_EQ(
      list.as_array()[0].at("path").as_string().find(folder.file("is/share/automodel/recipes/")),
      0u);
}

std::vector<std::string> new_arguments(const std::string& task, const std::string& output) {
  return {"new",
          "--task",
          task,
          "--model",
          source_file("tests/recipes/data/tiny_llama"),
          "--tokenizer",
          source_file("configs/quickstart_tokenizer"),
          "-o",
          output};
}

/// Writes a recipe, checks it from elsewhere and trains two steps.
void expect_trains(std::vector<std::string> arguments, const TemporaryDirectory& folder) {
  const std::string recipe = folder.file("recipe.yaml");
  const ProgramResult made = automodel(arguments);
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.out.find(cat(recipe, ": written, and right for 1 rank\n")), 0u) << made.out;
  const ProgramResult check = test::run_program(
      {"/bin/sh", "-c", "cd / && exec \"$@\"", "sh", test::automodel_binary(), "check", recipe});
  EXPECT_EQ(check.status, 0) << check.out << check.err;
  EXPECT_EQ(check.out.find("warning"), std::string::npos) << check.out;
  const ProgramResult run = automodel({"run", recipe, "--step_scheduler.max_steps=3",
                                       cat("--checkpoint.checkpoint_dir=", folder.file("out"))});
  EXPECT_EQ(run.status, 0) << run.out << run.err;
}

/// Few rows, of which a whole epoch is short.
std::string first_lines(const TemporaryDirectory& folder, const char* file, size_t count) {
  std::vector<std::string> lines = split(read_file(source_file(file)), '\n');
  lines.resize(count);
  return folder.write("rows.jsonl", join(lines, "\n") + "\n");
}

TEST(NewCommandTest, EveryTasksRecipeIsRightAndTrains) {
  for (const char* task : {"sft", "lora", "qlora"}) {
    const TemporaryDirectory folder;
    std::vector<std::string> arguments = new_arguments(task, folder.file("recipe.yaml"));
    arguments.insert(arguments.end(),
                     {"--data", first_lines(folder, "recipes/data/gsm8k_train.jsonl", 16)});
    expect_trains(arguments, folder);
  }
}

TEST(NewCommandTest, AChatsRecipeTrainsAlsoWithoutTheTokenizersTemplate) {
  const TemporaryDirectory folder;
  std::vector<std::string> arguments = new_arguments("chat", folder.file("recipe.yaml"));
  arguments.insert(arguments.end(),
                   {"--data", first_lines(folder, "recipes/data/chat_sums.jsonl", 16)});
  expect_trains(arguments, folder);
}

TEST(NewCommandTest, ADistillationsRecipeTrains) {
  const TemporaryDirectory folder;
  std::vector<std::string> arguments = new_arguments("distill", folder.file("recipe.yaml"));
  arguments.insert(arguments.end(),
                   {"--data", first_lines(folder, "recipes/data/gsm8k_train.jsonl", 16),
                    "--teacher", source_file("tests/recipes/data/tiny_teacher")});
  expect_trains(arguments, folder);
}

TEST(NewCommandTest, PretrainingTakesTextsAndTokens) {
  for (const char* data : {"recipes/data/tinyshakespeare.txt", "recipes/data/shakespeare",
                           "recipes/data/shakespeare.bin"}) {
    const TemporaryDirectory folder;
    std::vector<std::string> arguments = new_arguments("pretrain", folder.file("recipe.yaml"));
    std::string path = source_file(data);
    if (path.ends_with(".txt")) {
      path = folder.write("play.txt", read_file(path).substr(0, 40000));
    }
    arguments.insert(arguments.end(), {"--data", path});
    const ProgramResult made = automodel(arguments);
    ASSERT_EQ(made.status, 0) << made.err;
    const ProgramResult run =
        automodel({"run", folder.file("recipe.yaml"), "--step_scheduler.max_steps=2",
                   "--lr_scheduler.lr_warmup_steps=0", "--checkpoint.enabled=false"});
    EXPECT_EQ(run.status, 0) << run.out << run.err;
  }
}

TEST(NewCommandTest, ABenchmarkNeedsNoData) {
  const TemporaryDirectory folder;
  const ProgramResult made =
      automodel({"new", "--task", "benchmark", "--model", source_file("configs/tiny/qwen3_moe"),
                 "--nproc", "2", "-o", folder.file("b.yaml")});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(automodel({"check", folder.file("b.yaml"), "--world-size", "2"}).status, 0);
}

TEST(NewCommandTest, NothingIsWrittenAfterAnError) {
  const TemporaryDirectory folder;
  const std::string output = folder.file("recipe.yaml");
  const std::string rows = source_file("tests/recipes/data/rows.jsonl");
  const auto expect_error = [&](const std::vector<std::string>& more, int status,
                                const std::string& text) {
    std::vector<std::string> arguments = {"new", "-o", output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult run = automodel(arguments);
    EXPECT_EQ(run.status, status) << run.err;
    EXPECT_THAT(run.err, HasSubstr(text));
    EXPECT_FALSE(path_exists(output));
  };
  const std::string model = source_file("tests/recipes/data/tiny_llama");
  expect_error({"--task", "sft"}, 2,
               "a new recipe needs --model, --data; on a terminal they are asked for");
  expect_error({"--task", "sft", "--model", "/none", "--data", rows}, 2,
               "--model /none is no folder, and no name of the hub (org/name)");
  expect_error({"--task", "sft", "--model", model, "--data", rows}, 2, "has no tokenizer.json");
  expect_error({"--task", "sft", "--model", model, "--data", "/none.jsonl", "--tokenizer",
                source_file("configs/quickstart_tokenizer")},
               2, "--data /none.jsonl: there is no such file or folder");
  expect_error({"--task", "sft", "--model", model + "s/", "--data", rows}, 2,
               cat("--model ", model,
                   "s/ is no folder, and no name of the hub (org/name); did you "
                   "mean '",
                   model, "'?\n"));
  expect_error({"--task", "sft", "--model", model, "--data", rows + "on", "--tokenizer",
                source_file("configs/quickstart_tokenizer")},
               2, cat("(org/name); did you mean '", rows, "'?\n"));
  folder.write("broken/config.json", "{");
  expect_error({"--task", "sft", "--model", folder.file("broken"), "--data", rows}, 3,
               "not valid JSON");
  folder.write("other/config.json", "{\"architectures\": [\"T5Model\"], \"model_type\": \"t5\"}");
  expect_error({"--task", "sft", "--model", folder.file("other"), "--data", rows}, 6, "--model");
  folder.write("encoder/config.json",
               "{\"architectures\": [\"BertModel\"], \"model_type\": \"bert\"}");
  expect_error({"--task", "sft", "--model", folder.file("encoder"), "--data", rows}, 6,
               "embeddings of them alone: --task classify or embed");
  expect_error(
      {"--task", "classify", "--model", source_file("tests/recipes/data/tiny_t5"), "--data", rows},
      6, "on sources and targets alone: --task sft, lora or qlora");
  expect_error({"--task", "sft", "--model", source_file("tests/recipes/data/tiny_t5"), "--data",
                source_file("recipes/data/tinyshakespeare.txt"), "--tokenizer",
                source_file("configs/quickstart_tokenizer")},
               2, "is trained on sources and targets");
}

/// Of queries with passages: a model that makes embeddings, and a run of it.
TEST(NewCommandTest, EmbeddingsAreOfQueriesWithPassages) {
  const TemporaryDirectory folder;
  const std::string tokenizer = source_file("configs/quickstart_tokenizer");
  folder.write("alone.jsonl",
               "{\"query\": \"a b\", \"pos_doc\": \"a\"}\n"
               "{\"query\": \"c d\", \"pos_doc\": \"c\"}\n");
  const auto made = [&](const std::string& data, const std::string& model,
                        const std::string& name) {
    return automodel({"new", "--task", "embed", "--model", source_file(model), "--data", data,
                      "--tokenizer", tokenizer, "-o", folder.file(name)});
  };
  const std::string rows = source_file("tests/recipes/data/searches.jsonl");
  for (const char* model :
       {"tests/recipes/data/tiny_classifier", "tests/recipes/data/tiny_encoder"}) {
    const std::string name = cat(file_name(model), ".yaml");
    const ProgramResult result = made(rows, model, name);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(read_file(folder.file(name)), HasSubstr("n_passages: 3"));
    const ProgramResult run =
        automodel({"run", folder.file(name), "--step_scheduler.max_steps=2",
                   "--lr_scheduler.lr_warmup_steps=1",
                   cat("--checkpoint.checkpoint_dir=", folder.file(cat("run_", name)))});
    EXPECT_EQ(run.status, 0) << run.err;
  }
  ASSERT_EQ(
      made(folder.file("alone.jsonl"), "tests/recipes/data/tiny_classifier", "alone.yaml").status,
      0);
  EXPECT_THAT(read_file(folder.file("alone.yaml")),
              HasSubstr("do_distributed_inbatch_negative: true"));
  const auto refused = [&](const std::string& task, const std::string& data) {
    return automodel({"new", "--task", task, "--model",
                      source_file("tests/recipes/data/tiny_classifier"), "--data", data,
                      "--tokenizer", tokenizer, "-o", folder.file("refused.yaml")})
        .err;
  };
  EXPECT_THAT(refused("embed", source_file("tests/recipes/data/rows.jsonl")),
              HasSubstr("--task embed reads queries with passages (query, pos_doc, neg_doc)"));
  EXPECT_THAT(refused("sft", rows), HasSubstr("has queries with passages"));
}

/// Of a model of an encoder and a decoder: sources and targets, and a run of it.
TEST(NewCommandTest, AT5ReadsSourcesAndWritesTargets) {
  const TemporaryDirectory folder;
  for (const char* task : {"sft", "qlora"}) {
    const std::string output = folder.file(cat(task, ".yaml"));
    const ProgramResult made =
        automodel({"new", "--task", task, "--model", source_file("tests/recipes/data/tiny_t5"),
                   "--data", source_file("tests/recipes/data/rows.jsonl"), "--tokenizer",
                   source_file("configs/quickstart_tokenizer"), "-o", output});
    ASSERT_EQ(made.status, 0) << made.err;
    const std::string text = read_file(output);
    EXPECT_THAT(text, HasSubstr("nemo_automodel.NeMoAutoModelForSeq2SeqLM.from_pretrained"));
    EXPECT_THAT(text, HasSubstr("source_template: \"{question}\"  # what the model reads"));
    EXPECT_THAT(text, HasSubstr("target_key: answer  # what it writes"));
    const ProgramResult run = automodel(
        {"run", output, "--step_scheduler.max_steps=2", "--lr_scheduler.lr_warmup_steps=1",
         cat("--checkpoint.checkpoint_dir=", folder.file(cat(task, "_run")))});
    EXPECT_EQ(run.status, 0) << run.err;
  }
}

TEST(NewCommandTest, ADraftThatTheCheckFindsWrongIsNotWritten) {
  const TemporaryDirectory folder;
  folder.write("tokenizer/tokenizer.json", "{\"model\": {}}");
  const std::string output = folder.file("recipe.yaml");
  const ProgramResult run =
      automodel({"new", "--task", "sft", "--model", source_file("tests/recipes/data/tiny_llama"),
                 "--data", source_file("tests/recipes/data/rows.jsonl"), "--tokenizer",
                 folder.file("tokenizer"), "-o", output});
  EXPECT_NE(run.status, 0) << run.out;
  EXPECT_THAT(run.err, HasSubstr("tokenizer.json"));
  EXPECT_FALSE(path_exists(output));
}

TEST(NewCommandTest, AFileThatIsThereStays) {
  const TemporaryDirectory folder;
  const std::string output = folder.write("recipe.yaml", "mine");
  std::vector<std::string> arguments = new_arguments("sft", output);
  arguments.insert(arguments.end(), {"--data", source_file("tests/recipes/data/rows.jsonl")});
  const ProgramResult run = automodel(arguments);
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.err, cat(output, " is there already; -o names another file\n"));
  EXPECT_EQ(read_file(output), "mine");
}

TEST(DoctorCommandTest, SaysOfEachPartHowItIs) {
  const ProgramResult run = automodel({"doctor", "--offline"});
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  for (const char* part : {"CPU", "cores", "memory", "huge pages", "/dev/shm", "open files",
                           "disk of this folder", "disk of the hub's cache", "network", "CUDA"}) {
    EXPECT_THAT(run.out, HasSubstr(cat(" ", part, " ")));
  }
  EXPECT_THAT(run.out, HasSubstr("not asked (--offline)"));
  EXPECT_TRUE(run.out.ends_with("\nthis machine can train\n")) << run.out;
}

TEST(DoctorCommandTest, WhatForbidsTrainingIsStatus4) {
  const ProgramResult run = automodel({"doctor", "--offline", "--json"}, {"AUTOMODEL_CPU=avx9"});
  EXPECT_EQ(run.status, 4) << run.out << run.err;
  const Json parts = Json::parse(run.out, "doctor");
  EXPECT_EQ(parts.as_array()[0].at("part").as_string(), "CPU");
  EXPECT_TRUE(parts.as_array()[0].at("forbids_training").as_bool());
  EXPECT_EQ(parts.as_array()[0].at("verdict").as_string(), "problem");
}

}  // namespace
}  // namespace automodel::cli

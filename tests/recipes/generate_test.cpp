// `automodel generate`: what a model answers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "recipes/build/generation_config.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::TemporaryDirectory;
using testing::HasSubstr;

ProgramResult generated(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {test::automodel_binary(), "generate"});
  return test::run_program(arguments);
}

/// The tiny Llama with the quickstart's tokenizer, in `folder`.
void copy_model(const std::string& folder) {
  std::filesystem::create_directories(folder);
  for (const char* from : {"tests/recipes/data/tiny_llama", "configs/quickstart_tokenizer"}) {
    for (const auto& file : std::filesystem::directory_iterator(test::source_file(from))) {
      std::filesystem::copy_file(file.path(), path_join(folder, file.path().filename().string()));
    }
  }
}

TEST(GenerateTest, WritesWhatTransformersWrites) {
  const TemporaryDirectory folder;
  copy_model(folder.file("model"));
  const ProgramResult raw = generated({folder.file("model"), "The sum of two and three",
                                       "First Citizen:", "--raw", "--max-new-tokens=3"});
  EXPECT_EQ(raw.status, 0) << raw.err;
  EXPECT_EQ(raw.out, "adsadsads\n\uFFFD\uFFFD\uFFFD\n");
  // A message gets the words around it that the tokenizer's template writes.
  const ProgramResult chat =
      generated({folder.file("model"), "First Citizen:", "--max-new-tokens=3"});
  const ProgramResult same = generated(
      {folder.file("model"), "<|im_start|>user\nFirst Citizen:<|im_end|>\n<|im_start|>assistant\n",
       "--raw", "--max-new-tokens=3"});
  EXPECT_EQ(chat.out, same.out);
  EXPECT_NE(chat.out, "\uFFFD\uFFFD\uFFFD\n");
}

TEST(GenerateTest, ACheckpointIsTheFolderThatItWasExportedTo) {
  const TemporaryDirectory folder;
  copy_model(folder.file("step_9/model/consolidated"));
  const ProgramResult run =
      generated({folder.file("step_9"), "The sum of two and three", "--raw", "--max-new-tokens=2"});
  EXPECT_EQ(run.out, "adsads\n") << run.err;
}

/// The base's tensors but for what an adapter adds to them, and the tokenizer of either.
TEST(GenerateTest, AnAdapterWritesWhatItsMergedModelWrites) {
  const TemporaryDirectory folder;
  const std::string adapter = test::source_file("tests/peft/data/llama_dora");
  const std::string base = folder.file("base");
  std::filesystem::copy(test::source_file("tests/golden/llama_default"), base);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::copy_file(test::source_file(path_join("configs/quickstart_tokenizer", name)),
                               path_join(base, name));
  }
  const std::vector<std::string> rest = {"X7Y9", "--raw", "--max-new-tokens=20"};
  const auto written = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    const ProgramResult run = generated(arguments);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.out;
  };
  ASSERT_EQ(test::run_program(
                {test::automodel_binary(), "merge-lora", base, adapter, folder.file("merged")})
                .status,
            0);
  const std::string merged = written({folder.file("merged")});
  EXPECT_EQ(written({adapter, "--base", base}), merged);
  // A model under it may be a run's; files of the model beside an adapter are not what answers.
  std::filesystem::create_directories(folder.file("base_run/LATEST/model"));
  std::filesystem::copy(base, folder.file("base_run/LATEST/model/consolidated"));
  EXPECT_EQ(written({adapter, "--base", folder.file("base_run")}), merged);
  std::filesystem::copy(adapter, folder.file("both"));
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(path_join(base, name), path_join(folder.file("both"), name));
  }
  EXPECT_EQ(written({folder.file("both"), "--base", base}), merged);
  EXPECT_NE(written({base}), merged);
  EXPECT_THAT(generated({base, "X7Y9", "--raw", "--max-new-tokens=80"}).err,
              HasSubstr("tokens, are more than the 64 positions that the model was made for"));
  // As a run's checkpoint, whose adapter says which model it is of.
  std::filesystem::create_directories(folder.file("run/LATEST"));
  std::filesystem::copy(adapter, folder.file("run/LATEST/model"));
  Json config = Json::parse_file(path_join(adapter, "adapter_config.json"));
  config["base_model_name_or_path"] = base;
  folder.write("run/LATEST/model/adapter_config.json", config.dump());
  EXPECT_EQ(written({folder.file("run")}), merged);
}

TEST(GenerateTest, ANameOnTheHubIsItsSnapshotInTheCache) {
  const TemporaryDirectory folder;
  const std::string commit = "0123456789012345678901234567890123456789";
  copy_model(folder.file(cat("hub/models--org--tiny/snapshots/", commit)));
  folder.write("hub/models--org--tiny/refs/main", commit);
  const ProgramResult run =
      test::run_program({test::automodel_binary(), "generate", "org/tiny",
                         "The sum of two and three", "--raw", "--max-new-tokens=2"},
                        {cat("HF_HUB_CACHE=", folder.file("hub")), "HF_HUB_OFFLINE=1"});
  EXPECT_EQ(run.out, "adsads\n") << run.err;
}

TEST(GenerateTest, TokensAreDrawnAsTheFolderAndTheOptionsSay) {
  const TemporaryDirectory folder;
  copy_model(folder.file("model"));
  const auto written = [&](std::vector<std::string> arguments) {
    arguments.insert(
        arguments.begin(),
        {folder.file("model"), "First Citizen:", "First Citizen:", "--raw", "--max-new-tokens=8"});
    const ProgramResult run = generated(arguments);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.out;
  };
  const auto two_lines = [](const std::string& text) {
    const size_t end = text.find('\n');
    return std::pair(text.substr(0, end), text.substr(end + 1, text.size() - end - 2));
  };
  const std::string likely = written({});
  const std::string drawn = written({"--temperature=2"});
  EXPECT_NE(drawn, likely);
  EXPECT_EQ(written({"--temperature=2"}), drawn);
  EXPECT_NE(written({"--temperature=2", "--seed=7"}), drawn);
  EXPECT_NE(two_lines(drawn).first, two_lines(drawn).second);  // each prompt draws its own
  EXPECT_EQ(written({"--top-k=1"}), likely);
  EXPECT_EQ(written({"--top-p=0"}), likely);
  EXPECT_EQ(written({"--temperature=0"}), likely);
  folder.write("model/generation_config.json",
               R"({"do_sample": true, "temperature": 2.0, "num_beams": 4})");
  EXPECT_EQ(written({"--sample"}), drawn);
  EXPECT_EQ(written({}), likely);  // nothing is drawn unasked
  EXPECT_THAT(generated({folder.file("model"), "x", "--max-new-tokens=1"}).err,
              HasSubstr("generation_config.json: num_beams has no effect here"));
  folder.write("model/generation_config.json", R"({"repetition_penalty": 100.0})");
  EXPECT_NE(written({}), likely);  // which repeats one token
}

TEST(GenerateTest, EndTokensAreAllThatTheFolderNames) {
  const TemporaryDirectory folder;
  const auto tokens = [&](const char* config) {
    return end_tokens(7, Json::parse(config, "config"), folder.path());
  };
  EXPECT_EQ(tokens("{}"), std::vector<int64_t>{7});
  EXPECT_EQ(tokens(R"({"eos_token_id": 3})"), (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(tokens(R"({"text_config": {"eos_token_id": [4, 5]}})"),
            (std::vector<int64_t>{7, 4, 5}));
  folder.write("generation_config.json", R"({"eos_token_id": [1, 2]})");
  EXPECT_EQ(tokens(R"({"eos_token_id": null})"), (std::vector<int64_t>{7, 1, 2}));
  EXPECT_EQ(end_tokens(std::nullopt, Json::object(), ""), std::vector<int64_t>{});
}

TEST(GenerateTest, WhatCannotWriteIsNamed) {
  const TemporaryDirectory folder;
  const auto told = [&](const char* path) { return generated({folder.file(path), "x"}).err; };
  const auto adapter_of = [](const char* base) {
    return cat(R"({"r": 2, "lora_alpha": 4, "base_model_name_or_path": )", base, "}");
  };
  folder.write("adapter/adapter_config.json", adapter_of("null"));
  EXPECT_THAT(told("adapter"), HasSubstr("adapter does not say which model it is of: give"));
  folder.write("run/LATEST/model/adapter_config.json", adapter_of("\"/no/such/model\""));
  EXPECT_THAT(told("run"), HasSubstr("run/LATEST/model names /no/such/model, which is not here"));
  folder.write("far/adapter_config.json", adapter_of("\"no-such/model\""));
  const ProgramResult far = generated({folder.file("far"), "x"});
  EXPECT_EQ(far.status, 3);
  EXPECT_THAT(far.err,
              HasSubstr("far names it: give the model that it was trained with by --base"));
  folder.write("step_1/manifest.json", "{}");
  EXPECT_THAT(told("step_1"), HasSubstr("step_1 has no exported model: automodel export "));
  EXPECT_THAT(generated({folder.file("nowhere"), "x", "--base", folder.path()}).err,
              HasSubstr("nowhere is not there"));
  const ProgramResult nowhere = generated({folder.file("nowhere"), "x"});
  EXPECT_EQ(nowhere.status, 3);
  EXPECT_THAT(nowhere.err, HasSubstr("nowhere"));
  copy_model(folder.file("model"));
  const ProgramResult nothing = generated({folder.file("model"), "", "--raw"});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, HasSubstr("prompt 1 has no token"));
  std::filesystem::copy(test::source_file("tests/golden/llama_default"), folder.file("small"));
  std::filesystem::copy_file(test::source_file("configs/quickstart_tokenizer/tokenizer.json"),
                             folder.file("small/tokenizer.json"));
  EXPECT_THAT(generated({folder.file("small"), "The sum", "--raw"}).err,
              HasSubstr("of its vocabulary; the model's has 128"));
  EXPECT_EQ(generated({folder.file("model")}).status, 2);
  EXPECT_EQ(generated({folder.file("model"), "x", "--max-new-tokens=0"}).status, 2);
  EXPECT_THAT(generated({folder.file("model"), "x", "--base", folder.file("model")}).err,
              HasSubstr("--base is the model under an adapter"));
  EXPECT_THAT(generated({folder.file("model"), "x", "--top-p=1.5"}).err,
              HasSubstr("--top-p: top_p is 1.5, right is a number from 0 to 1"));
  folder.write("model/generation_config.json", R"({"temperature": -1})");
  EXPECT_EQ(generated({folder.file("model"), "x", "--max-new-tokens=1"}).status, 0);
  const ProgramResult wrong = generated({folder.file("model"), "x", "--sample"});
  EXPECT_EQ(wrong.status, 3);
  EXPECT_THAT(wrong.err, HasSubstr("generation_config.json: temperature is -1, right is"));
  EXPECT_THAT(generated({folder.file("model"), "x", "--seed=-1"}).err,
              HasSubstr("--seed must be at least 0, found -1"));
  EXPECT_THAT(generated({folder.file("model"), "x", "--seed=1", "--max-new-tokens=1"}).err,
              HasSubstr("--seed has no effect: nothing is drawn"));
}

}  // namespace
}  // namespace automodel::recipes

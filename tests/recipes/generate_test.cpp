// `automodel generate`: what a model answers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "recipes/build/end_tokens.h"
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
  folder.write("adapter/adapter_config.json", "{}");
  EXPECT_THAT(told("adapter"), HasSubstr("automodel merge-lora BASE "));
  folder.write("run/LATEST/model/adapter_config.json", "{}");
  EXPECT_THAT(told("run"), HasSubstr("run/LATEST/model has an adapter without its model"));
  folder.write("step_1/manifest.json", "{}");
  EXPECT_THAT(told("step_1"), HasSubstr("step_1 has no exported model: automodel export "));
  const ProgramResult nowhere = generated({folder.file("nowhere"), "x"});
  EXPECT_EQ(nowhere.status, 3);
  EXPECT_THAT(nowhere.err, HasSubstr("nowhere"));
  copy_model(folder.file("model"));
  const ProgramResult nothing = generated({folder.file("model"), "", "--raw"});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, HasSubstr("prompt 1 has no token"));
  EXPECT_EQ(generated({folder.file("model")}).status, 2);
  EXPECT_EQ(generated({folder.file("model"), "x", "--max-new-tokens=0"}).status, 2);
}

}  // namespace
}  // namespace automodel::recipes

#include <gtest/gtest.h>

#include <algorithm>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "datasets/pretraining/bin_shard.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel {
namespace {

constexpr const char* kLines =
    "{\"text\": \"First Citizen: Before we proceed any further, hear me speak.\"}\n"
    "\n"
    "{\"text\": \"\"}\n"
    "{\"text\": \"<|endoftext|>All: Speak, speak.\"}\n";

/// Runs the command on some lines.
test::ProgramResult tokenize(const test::TemporaryDirectory& folder, const std::string& lines,
                             const std::string& arguments) {
  const std::string input = folder.write("lines.jsonl", lines);
  return test::run_program(
      {"/bin/sh", "-c", cat(test::automodel_binary(), " tokenize ", arguments, " < ", input)});
}

std::string tokenizer_argument() {
  return cat("--tokenizer ", test::source_file("configs/quickstart_tokenizer"));
}

TEST(TokenizeTest, WritesAFileOfTheTokensThatItPrints) {
  const test::TemporaryDirectory folder;
  const test::ProgramResult printed = tokenize(folder, kLines, tokenizer_argument());
  ASSERT_EQ(printed.status, 0) << printed.err;
  std::vector<int64_t> wanted;
  for (const std::string& line : split(printed.out, '\n')) {
    if (line.empty()) continue;
    const Json record = Json::parse(line, "ids");
    std::vector<int64_t> ids;
    for (const Json& id : record.at("ids").as_array()) ids.push_back(id.as_int());
    if (ids.empty()) continue;
    if (ids[0] != 0) wanted.push_back(0);  // the tokenizer's BOS
    wanted.insert(wanted.end(), ids.begin(), ids.end());
  }
  const std::string path = folder.file("a.bin");
  const test::ProgramResult written =
      tokenize(folder, kLines, cat(tokenizer_argument(), " --bin ", path));
  EXPECT_EQ(written.status, 0) << written.err;
  EXPECT_EQ(written.out, cat(path, ": 2 documents, ", wanted.size(),
                             " tokens of 2 bytes, each document begins with 0\n"));
  const auto shard = datasets::BinShard::read(path);
  ASSERT_EQ(shard.num_tokens, std::ssize(wanted));
  EXPECT_EQ(datasets::BinTokens(shard).read(0, shard.num_tokens), wanted);
  const auto second = std::find(wanted.begin() + 1, wanted.end(), 0);
  EXPECT_EQ(datasets::BinTokens(shard).find(0, 1), second - wanted.begin());
}

TEST(TokenizeTest, PlainLinesAreTexts) {
  const test::TemporaryDirectory folder;
  const auto decoded = [&](const std::string& lines, const std::string& option) {
    return tokenize(folder, lines, cat(tokenizer_argument(), option));
  };
  const test::ProgramResult plain = decoded("All: {\"text\"\n\nSpeak\n", " --plain");
  ASSERT_EQ(plain.status, 0) << plain.err;
  const std::vector<std::string> lines = split(plain.out, '\n');
  ASSERT_EQ(lines.size(), 3U) << plain.out;
  EXPECT_EQ(Json::parse(lines[0], "ids").at("decoded").as_string(), "All: {\"text\"");
  EXPECT_EQ(Json::parse(lines[1], "ids").at("decoded").as_string(), "Speak");

  const test::ProgramResult without = decoded("Speak\n", "");
  EXPECT_EQ(without.status, 3);
  EXPECT_EQ(without.err,
            "line 1: expected an object such as {\"text\": \"Good morning\"}; --plain reads every "
            "line as a text\n");
}

TEST(TokenizeTest, LeavesNoFileWhereALineIsWrong) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.file("a.bin");
  const test::ProgramResult run =
      tokenize(folder, cat(kLines, "{\"texts\": 1}\n"), cat(tokenizer_argument(), " --bin ", path));
  EXPECT_EQ(run.status, 3);
  EXPECT_EQ(run.err, "line 5: expected an object with a string `text`\n");
  EXPECT_FALSE(path_exists(path));
  EXPECT_EQ(list_directory(folder.path()), std::vector<std::string>{"lines.jsonl"});
}

}  // namespace
}  // namespace automodel

#include "datasets/conversations/tool_call_prompts.h"

#include <gtest/gtest.h>

#include "core/text.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;
using automodel::test::source_file;
using automodel::test::TemporaryDirectory;

constexpr const char* kWithout = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n";
constexpr const char* kTwoCalls =
    R"({"messages": [{"role": "user", "content": "A"}, )"
    R"({"role": "tool_call", "content": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"}, )"
    R"({"role": "tool_response", "content": "B"}, )"
    R"({"role": "tool_call", "content": "{\"name\": \"g\"}"}]})"
    "\n";

class ToolCallPromptsTest : public testing::Test {
 protected:
  SourceOptions source(const std::string& lines) const {
    return {.paths = {directory_.write("x.jsonl", lines)}, .split = std::nullopt};
  }

  /// "line 2, turn 1: [calls]" of each prompt.
  std::string read(const std::string& lines, std::optional<int64_t> max_samples) const {
    std::vector<std::string> texts;
    for (const ToolCallPrompt& prompt : read_tool_call_prompts(source(lines), max_samples)) {
      texts.push_back(cat("line ", prompt.origin.substr(directory_.file("x.jsonl:").size()),
                          ", turn ", prompt.turn, ": ", prompt.calls.dump()));
    }
    return join(texts, "\n");
  }

  std::string error(const std::string& lines) const {
    return replace_all(error_of<InputError>([&] { read(lines, std::nullopt); }),
                       directory_.file("x.jsonl"), "x.jsonl");
  }

  TemporaryDirectory directory_;
};

TEST_F(ToolCallPromptsTest, PromptsOfTracesAreThoseThatAutoModelMakes) {
  const Json goldens = Json::parse_file(source_file("tests/datasets/data/tool_call_prompts.json"));
  int num_prompts = 0;
  for (const Json& golden : goldens.as_array()) {
    SCOPED_TRACE(golden.dump());
    // A row of which nothing is made is not alone.
    const SourceOptions rows = source(golden.at("row").dump() + "\n" + kTwoCalls);
    std::vector<ToolCallPrompt> prompts = read_tool_call_prompts(rows, std::nullopt);
    prompts.resize(prompts.size() - 2);
    Json found = Json::array();
    for (const ToolCallPrompt& prompt : prompts) {
      EXPECT_EQ(prompt.origin, rows.paths[0] + ":1");
      Json& entry = found.as_array().emplace_back();
      entry["messages"] = prompt.messages;
      entry["tools"] = prompt.tools;
      entry["calls"] = prompt.calls;
      entry["turn"] = prompt.turn;
      ++num_prompts;
    }
    EXPECT_EQ(found.dump(), golden.at("prompts").dump());
  }
  EXPECT_GE(num_prompts, 9);
}

TEST_F(ToolCallPromptsTest, RowsAreReadUntilThereAreEnoughPrompts) {
  const std::string lines = cat(kWithout, kTwoCalls, kTwoCalls, "no JSON\n");
  constexpr const char* kFirst = R"(line 2, turn 0: [{"name": "f", "arguments": {"x": 1}}])";
  EXPECT_EQ(read(lines, 1), kFirst);
  EXPECT_EQ(read(lines, 3), cat(kFirst, "\nline 2, turn 1: [{\"name\": \"g\", \"arguments\": {}}]",
                                replace_all(cat("\n", kFirst), "line 2", "line 3")));
  EXPECT_EQ(read(cat(kWithout, kTwoCalls), 7),
            cat(kFirst, "\nline 2, turn 1: [{\"name\": \"g\", \"arguments\": {}}]"));
}

TEST_F(ToolCallPromptsTest, SourcesWithoutCallsAndRowsThatAreNoTracesAreRefused) {
  EXPECT_EQ(error(cat(kWithout, kWithout)),
            "x.jsonl: no message of the assistant has tool calls in the 2 rows that are read");
  EXPECT_EQ(error(cat(kTwoCalls, "{\"messages\": 3}\n")),
            "x.jsonl:2: a row must hold a list `messages` (OpenAI, Swift) or `conversations` "
            "(ShareGPT)");
  EXPECT_EQ(error(R"({"messages": [{"role": "tool_call", "content": "{\"name\": \"f\"}"}], )"
                  R"("tools": 3})"),
            "x.jsonl:1: tools must be a list, or a list as JSON text, found an integer");
}

}  // namespace
}  // namespace automodel::datasets

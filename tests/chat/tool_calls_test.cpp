#include "chat/tool_calls.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "chat/balanced_spans.h"
#include "chat/python_json.h"
#include "core/text.h"
#include "support/cpu_seconds.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::chat {
namespace {

using namespace std::string_view_literals;

using automodel::test::error_of;
using automodel::test::source_file;

Json read_goldens() {
  return Json::parse_file(source_file("tests/chat/data/tool_calls.json"));
}

/// "add {"a": 1}", "? {} (not valid)", "; " between calls.
std::string text_of(const std::vector<ParsedToolCall>& calls) {
  std::vector<std::string> texts;
  for (const ParsedToolCall& call : calls) {
    texts.push_back(cat(call.name.value_or("?"), " ", call.arguments.dump(),
                        call.has_valid_arguments ? "" : " (not valid)"));
  }
  return join(texts, "; ");
}

std::string parsed(std::string_view text) {
  return text_of(parse_tool_calls(text));
}

ToolCallScores scores(std::string_view text, std::string_view expected) {
  return score_tool_calls(parse_tool_calls(text), *parse_python_json(expected));
}

std::string repeated(std::string_view piece, size_t size) {
  std::string text;
  while (text.size() < size) text += piece;
  return text;
}

/// The calls of a golden case as parse_tool_calls() gives them.
std::vector<ParsedToolCall> calls_of(const Json& golden) {
  std::vector<ParsedToolCall> calls;
  for (const Json& call : golden.at("calls").as_array()) {
    ParsedToolCall& added = calls.emplace_back();
    if (call.at("name").is_string()) added.name = call.at("name").as_string();
    added.arguments = *parse_python_json(call.at("arguments").as_string());
    added.has_valid_arguments = call.at("is_valid").as_bool();
  }
  return calls;
}

TEST(ToolCallsTest, CallsOfTextsAreThoseThatAutoModelFinds) {
  const Json goldens = read_goldens();
  for (const Json& golden : goldens.as_array()) {
    SCOPED_TRACE(golden.dump());
    // As text that is UTF-8, which not every string is.
    EXPECT_EQ(Json(parsed(golden.at("text").as_string())).dump(),
              Json(text_of(calls_of(golden))).dump());
  }
  EXPECT_GT(goldens.size(), 600U);
}

TEST(ToolCallsTest, ScoresOfTextsAreThoseThatAutoModelGives) {
  std::map<std::string_view, int> num_between;  // 0 and 1
  const Json goldens = read_goldens();
  for (const Json& golden : goldens.as_array()) {
    SCOPED_TRACE(golden.dump());
    const ToolCallScores found =
        scores(golden.at("text").as_string(), golden.at("expected").as_string());
    EXPECT_EQ(golden.at("scores").size(), ToolCallScores::metrics().size());
    for (const auto& [name, score] : ToolCallScores::metrics()) {
      EXPECT_EQ(found.*score, golden.at("scores").at(name).as_double()) << name;
      if (found.*score > 0 && found.*score < 1) ++num_between[name];
    }
  }
  for (const auto& [name, score] : ToolCallScores::metrics()) EXPECT_GT(num_between[name], 5);
}

TEST(ToolCallsTest, TheFirstFormWithACallIsTheTexts) {
  const std::string qwen = "<tool_call>{\"name\": \"q\"}</tool_call>";
  const std::string llama = "<|python_tag|>{\"name\": \"l\", \"parameters\": {\"a\": 1}}";
  const std::string mistral = "[TOOL_CALLS][{\"name\": \"m\"}, {\"name\": \"n\"}]";
  const std::string harmony = "<|channel|>commentary to=functions.h<|message|>{\"b\": [2]}";
  EXPECT_EQ(parsed(mistral + llama + qwen + harmony), "h {\"b\": [2]}");
  EXPECT_EQ(parsed(mistral + llama + qwen), "q {}");
  EXPECT_EQ(parsed(mistral + llama), "l {\"a\": 1}");
  EXPECT_EQ(parsed(mistral + "{\"name\": \"o\"}"), "m {}; n {}");
  EXPECT_EQ(parsed("{\"name\": \"o\"}"), "o {}");
  EXPECT_EQ(parsed("nothing"), "");
}

TEST(ToolCallsTest, BrokenJsonIsACallWhereAMarkSaysThatThereIsOne) {
  EXPECT_EQ(parsed("<tool_call>{]</tool_call>{\"name\": \"o\"}"), "? {} (not valid)");
  EXPECT_EQ(parsed("<|python_tag|>{]}{\"name\": \"o\"}"), "? {} (not valid)");
  EXPECT_EQ(parsed("<|channel|>commentary to=functions.h<|message|>{]}"), "h {} (not valid)");
  EXPECT_EQ(parsed("[TOOL_CALLS][}]{\"name\": \"o\"}"), "o {}");
  EXPECT_EQ(parsed("{]}{\"name\": \"o\"}"), "o {}");
}

TEST(ToolCallsTest, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(parsed("\xFF{\"name\": \"a\xC3\", \"arguments\": {\"\x80\": 1}}\xE2\x82"),
            "a\uFFFD {\"\uFFFD\": 1}");
  EXPECT_EQ(parsed("{\"name\": \"a\0\"}{\"name\": \"b\"}"sv), "b {}");
}

TEST(ToolCallsTest, JsonThatIsNestedTooDeepIsBroken) {
  const auto call = [](size_t depth) {
    return cat("<tool_call>{\"name\": \"a\", \"arguments\": {\"b\": ", std::string(depth, '['),
               std::string(depth, ']'), "}}</tool_call>");
  };
  EXPECT_TRUE(parse_tool_calls(call(958)).at(0).has_valid_arguments);
  EXPECT_EQ(parsed(call(959)), "? {} (not valid)");
  EXPECT_EQ(parsed(call(1'000'000)), "? {} (not valid)");
}

TEST(ToolCallsTest, LongTextsOfMarksTakeNoLongTime) {
  constexpr size_t kSize = 400'000;
  const char* pieces[] = {"{",
                          "}",
                          "\"",
                          "\\",
                          "{\"",
                          "[",
                          " ",
                          "<tool_call>",
                          "<tool_call>{\"",
                          "</tool_call>",
                          "<tool_call> </tool_call>",
                          "<|python_tag|>",
                          "<|python_tag|>{",
                          "<|python_tag|>{\"",
                          "<|python_tag|>{\\\"",
                          "<|python_tag|>{\"a\": \"",
                          "[TOOL_CALLS][",
                          "[TOOL_CALLS][\"",
                          "<|channel|>commentary ",
                          "<|channel|>commentary to=functions.a<|message|>{",
                          "<|channel|>commentary to=functions.aaaaaaaaaaaaaaaaaaa"};
  for (const char* piece : pieces) {
    SCOPED_TRACE(piece);
    const double begin = test::thread_cpu_seconds();
    const std::string text = repeated(piece, kSize);
    parse_tool_calls(text);
    parse_tool_calls(text + std::string(kSize, '}'));
    parse_tool_calls("<|python_tag|>{\"a\": \"" + text + std::string(kSize, ']') + "</tool_call>");
    // A few hundredths of a second; fifteen where every mark is followed to the end.
    EXPECT_LT(test::thread_cpu_seconds() - begin, 2);
  }
}

TEST(ToolCallsTest, BalancedSpansAreThoseOfAReaderThatStartsAtEachPlace) {
  const auto plain_end = [](std::string_view text, size_t begin) {
    int64_t depth = 0;
    bool is_in_string = false;
    for (size_t at = begin; at < text.size(); ++at) {
      if (text[at] == '\\' && is_in_string) {
        ++at;
      } else if (text[at] == '"') {
        is_in_string = !is_in_string;
      } else if (!is_in_string) {
        depth += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
        if (depth == 0) return at + 1;
      }
    }
    return std::string_view::npos;
  };
  std::mt19937 random(0);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    std::vector<size_t> begins, ends;
    while (text.size() < 60) text.push_back("{{}}\"\\a"[random() % 7]);
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '{' || random() % 3 == 0) continue;
      begins.push_back(at);
      ends.push_back(plain_end(text, at));
    }
    EXPECT_EQ(balanced_ends(text, begins, '{', '}'), ends) << text;
  }
}

TEST(ToolCallsTest, OfEqualKeysTheLastCountsInObjectsOfAnySize) {
  std::string members;
  for (int i = 0; i < 200; ++i) members += cat("\"k", i % 100, "\": ", i, ", ");
  const Json object = *parse_python_json(cat("{", members, "\"k0\": -1}"));
  ASSERT_EQ(object.size(), 100U);
  EXPECT_EQ(object.as_object()[0], Json::Member("k0", -1));
  EXPECT_EQ(object.as_object()[99], Json::Member("k99", 199));
  const std::string call = cat("{\"name\": \"f\", \"arguments\": {", members, "\"k0\": -1}}");
  EXPECT_EQ(score_tool_calls(parse_tool_calls(call), Json::parse(cat("[", call, "]"), "expected"))
                .args_exact_match,
            1);
}

TEST(ToolCallsTest, ScoresAddUpToMeans) {
  ToolCallScores sum;
  sum += scores("{\"name\": \"f\"}", R"([{"name": "f", "arguments": {}}])");
  sum += scores("{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": 2}}",
                R"([{"name": "g", "arguments": {"a": 2}}])");
  sum += scores("nothing", R"([{"name": "f", "arguments": {}}])");
  sum += scores("{\"name\": \"f\"}", "[]");
  sum /= 4;
  std::vector<double> means;
  for (const auto& [name, score] : ToolCallScores::metrics()) means.push_back(sum.*score);
  EXPECT_EQ(means, (std::vector<double>{0.5, 0.25, 0.5, 0.5, 0.375, 0.25}));
}

TEST(ToolCallsTest, WhatWasExpectedIsAList) {
  EXPECT_EQ(error_of<InputError>([] { score_tool_calls({}, Json::object()); }),
            "expected an array, found an object");
}

}  // namespace
}  // namespace automodel::chat

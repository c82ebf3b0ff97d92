#include <gtest/gtest.h>

#include "core/text.h"
#include "datasets/conversations/agent_chat.h"
#include "datasets/conversations/xlam.h"
#include "datasets/encoders.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;
using automodel::test::TemporaryDirectory;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role[0] }}({{ m.content }}{% for c in m.tool_calls or [] %}"
    "[{{ c.id }} {{ c.function.name }} {{ c.function.arguments }}]{% endfor %}{{ m.tool_call_id }})"
    "{% endfor %}";

std::string text_of(const std::vector<int64_t>& ids) {
  std::string out;
  for (const int64_t id : ids) out.push_back(id == kIgnoreIndex ? '_' : static_cast<char>(id));
  return out;
}

class FunctionCallsTest : public testing::Test {
 protected:
  FunctionCallsTest() {
    encoder_.has_template = true;
    encoder_.template_text = kTemplate;
  }

  XlamConfig xlam(const std::string& lines) const {
    return {.dataset_name = directory_.write("x.jsonl", lines)};
  }

  std::string xlam_error(const std::string& line) const {
    const XlamConfig config = xlam(line);
    return replace_all(error_of<InputError>([&] { XlamDataset(config, encoder_); }),
                       config.dataset_name, "x.jsonl");
  }

  AgentChatConfig traces(const std::string& lines) const {
    return {.path = {directory_.write("x.jsonl", lines)}};
  }

  std::string trace_error(const std::string& line) const {
    const AgentChatConfig config = traces(line);
    return replace_all(error_of<InputError>([&] { AgentChatDataset(config, encoder_); }),
                       config.path[0], "x.jsonl");
  }

  std::string finding(const AgentChatConfig& config) const {
    return replace_all(join(AgentChatDataset(config, encoder_).findings(), "\n"), config.path[0],
                       "x.jsonl");
  }

  TemporaryDirectory directory_;
  datasets::test::ByteEncoder encoder_;
};

constexpr const char* kXlamRows =
    R"({"query": "a", "tools": "[]", "answers": "[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]"})"
    "\n"
    R"({"query": "b", "tools": [], "answers": [{"name": "g"}, {"name": "h"}], "id": 3})"
    "\n";

TEST_F(FunctionCallsTest, CallsOfXlamCountInTheLossAndHaveTheirArguments) {
  XlamConfig config = xlam(kXlamRows);
  const XlamDataset dataset(config, encoder_);
  ASSERT_EQ(dataset.size(), 2);
  EXPECT_EQ(text_of(dataset.at(0).input_ids), R"(u(a)a([call_0 f {"x": 1}])");
  EXPECT_EQ(text_of(dataset.at(0).labels), R"(___a([call_0 f {"x": 1}]))");
  EXPECT_EQ(text_of(dataset.at(1).labels), "___a([call_3_0 g ][call_3_1 h ])");
  config.split = "train[1:]";
  config.limit_dataset_samples = 9;
  EXPECT_EQ(text_of(XlamDataset(config, encoder_).at(0).input_ids).substr(0, 3), "u(b");
  config.split = "train";
  config.limit_dataset_samples = 1;
  EXPECT_EQ(XlamDataset(config, encoder_).size(), 1);
  config.seq_length = 8;
  config.truncation = Truncation::kToLength;
  EXPECT_EQ(text_of(XlamDataset(config, encoder_).at(0).labels), "___a([c");
  config.seq_length = 40;
  config.padding = Padding::kMaxLength;
  EXPECT_EQ(XlamDataset(config, encoder_).at(0).input_ids.size(), 40U);
  config.padding = Padding::kNone;
  config.chat_template =
      "{{ messages[1:][0].tool_calls[0].function.name }}{% generation %}!{% endgeneration %}";
  EXPECT_EQ(text_of(XlamDataset(config, encoder_).at(0).labels), "!");
}

TEST_F(FunctionCallsTest, RowsThatAreNotOfXlamAreNamed) {
  EXPECT_EQ(xlam_error(R"({"query": 1, "tools": [], "answers": []})"),
            "x.jsonl:1: column 'query' must hold text, it holds an integer");
  EXPECT_EQ(xlam_error(R"({"query": "", "answers": []})"), "x.jsonl:1: no column 'tools'");
  EXPECT_EQ(xlam_error(R"({"query": "", "tools": 5, "answers": []})"),
            "x.jsonl:1: tools must be a list, or a list as JSON text, found an integer");
  EXPECT_EQ(xlam_error(R"({"query": "", "tools": [{}], "answers": []})"),
            "x.jsonl:1: tools[0] has no `name`");
  EXPECT_EQ(
      xlam_error(R"({"query": "", "tools": [{"name": "f", "parameters": []}], "answers": []})"),
      "x.jsonl:1: tools[0].parameters must be an object, found an array");
  EXPECT_EQ(
      xlam_error(
          R"({"query": "", "tools": [{"name": "f", "parameters": {"x": 1}}], "answers": []})"),
      "x.jsonl:1: tools[0]: parameter 'x' must be an object, found an integer");
  EXPECT_EQ(xlam_error(R"({"query": "", "tools": [], "answers": [1]})"),
            "x.jsonl:1: answers[0] has no `name`");
  EXPECT_EQ(
      xlam_error(R"({"query": "", "tools": [], "answers": [{"name": "f", "arguments": "{"}]})")
          .substr(0, 47),
      "x.jsonl:1: answers[0].arguments: not valid JSON");
  const XlamConfig config = xlam("{\"query\": \"\", \"tool\": []}\n");
  EXPECT_EQ(
      error_of<InputError>([&] { check(config); }),
      config.dataset_name + ": no column 'tools'; columns: query, tool; did you mean 'tool'?");
  encoder_.has_template = false;
  EXPECT_EQ(
      error_of<UserError>([&] { XlamDataset(xlam(kXlamRows), encoder_); }),
      "tokenizer bytes has no chat template; set chat_template to one, or to a file with one");
}

constexpr const char* kTraces =
    R"({"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}, )"
    R"({"role": "user", "content": "C"}, {"role": "assistant", "content": "D"}]})"
    "\n"
    R"({"messages": [{"role": "user", "content": "E"}, )"
    R"({"role": "tool_call", "content": "{\"name\": \"f\"}"}]})"
    "\n"
    R"({"conversations": [{"from": "human", "value": "0123456789"}, {"from": "gpt", "value": "F"}]})"
    "\n";

TEST_F(FunctionCallsTest, FiltersOfTracesLeaveRowsOutAndSayHowMany) {
  AgentChatConfig config = traces(kTraces);
  EXPECT_EQ(AgentChatDataset(config, encoder_).size(), 3);
  config.filter_no_assistant = true;
  const AgentChatDataset dataset(config, encoder_);
  ASSERT_EQ(dataset.size(), 2);
  EXPECT_EQ(text_of(dataset.at(1).labels), "____________a(F)");
  EXPECT_EQ(dataset.at(1).row, 1);
  EXPECT_EQ(dataset.origin(1), config.path[0] + ":3");
  EXPECT_EQ(
      finding(config),
      "x.jsonl:1: 1 of 3 rows are left out: 0 longer than seq_length, 1 without the assistant");
  config.filter_overlong = true;
  config.seq_length = 16;
  EXPECT_EQ(
      finding(config),
      "x.jsonl:1: 2 of 3 rows are left out: 1 longer than seq_length, 1 without the assistant");
  config.seq_length = 8;
  EXPECT_NE(error_of<InputError>([&] {
              AgentChatDataset(config, encoder_);
            }).find("all rows are left out"),
            std::string::npos);
  config.truncate_history = true;  // the last exchange alone fits
  EXPECT_EQ(text_of(AgentChatDataset(config, encoder_).at(0).labels), "___a(D)");
}

TEST_F(FunctionCallsTest, LimitsLengthsAndTemplatesOfTraces) {
  AgentChatConfig config = traces(kTraces);
  config.limit_dataset_samples = 1;
  EXPECT_EQ(AgentChatDataset(config, encoder_).size(), 1);
  config.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(text_of(AgentChatDataset(config, encoder_).at(0).input_ids), "ABC");
  config.seq_length = 3;
  config.truncation = Truncation::kToLength;
  EXPECT_EQ(text_of(AgentChatDataset(config, encoder_).at(0).input_ids), "AB");
  config.padding = Padding::kMaxLength;
  config.seq_length = 9;
  EXPECT_EQ(AgentChatDataset(config, encoder_).at(0).input_ids.size(), 9U);
}

TEST_F(FunctionCallsTest, OptionsOfTracesThatDoNotGoTogetherAreRefused) {
  const auto refused = [&](auto set) {
    AgentChatConfig config = traces(kTraces);
    set(config);
    return error_of<UserError>([&] { check(config); });
  };
  EXPECT_EQ(refused([](auto& config) { config.dataset_name = "org/data"; }),
            "give either dataset_name (data set of the hub, or a folder) or path (files)");
  EXPECT_EQ(refused([](auto& config) { config.path = {}; }),
            "give either dataset_name (data set of the hub, or a folder) or path (files)");
  EXPECT_EQ(refused([](auto& config) { config.split = "train[:3]"; }),
            "split and revision are of dataset_name; all rows of path are read "
            "(limit_dataset_samples takes the first ones)");
  EXPECT_EQ(refused([](auto& config) { config.filter_overlong = true; }),
            "filter_overlong: true needs seq_length");
  EXPECT_EQ(refused([](auto& config) { config.truncate_history = true; }),
            "truncate_history: true needs seq_length");
  AgentChatConfig of_folder;
  of_folder.dataset_name = directory_.write("x.jsonl", kTraces);
  of_folder.split = "train[2:]";
  EXPECT_EQ(text_of(AgentChatDataset(of_folder, encoder_).at(0).labels), "____________a(F)");
}

TEST_F(FunctionCallsTest, RowsThatAreNoTracesAreNamed) {
  EXPECT_EQ(trace_error("{\"messages\": 3}"),
            "x.jsonl:1: a row must hold a list `messages` (OpenAI, Swift) or `conversations` "
            "(ShareGPT)");
  EXPECT_EQ(trace_error("{\"messages\": []}"), "x.jsonl:1: the conversation has no message");
  EXPECT_EQ(trace_error("{\"messages\": [4]}"),
            "x.jsonl:1: message 1 must be an object, found an integer");
  EXPECT_EQ(trace_error(R"({"messages": [{"role": "robot"}]})"),
            "x.jsonl:1: message 1: the role must be system, user, assistant, tool, tool_call or "
            "tool_response, found \"robot\"");
  EXPECT_EQ(trace_error(R"({"conversations": [{"from": "robot"}]})"),
            "x.jsonl:1: message 1: `from` must be system, human, user, gpt, assistant, "
            "function_call, tool_call, observation, tool_response or tool, found \"robot\"");
  EXPECT_EQ(trace_error(R"({"messages": [{"role": "tool_call", "content": "{}"}]})"),
            "x.jsonl:1: message 1: the call has no `name`");
  EXPECT_EQ(trace_error(R"({"messages": [{"role": "tool_call", "content": "{"}]})").substr(0, 37),
            "x.jsonl:1: message 1: not valid JSON ");
  EXPECT_EQ(trace_error(R"({"messages": [{"role": "assistant", "tool_calls": {}}]})"),
            "x.jsonl:1: message 1: tool_calls must be a list, found an object");
  EXPECT_EQ(trace_error(R"({"messages": [{"role": "assistant", "tool_calls": [{}]}]})"),
            "x.jsonl:1: message 1: tool_calls[0] has no object `function`");
  EXPECT_EQ(
      trace_error(R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]})"),
      "x.jsonl:1: message 1: tool_calls[0].function has no `name`");
}

}  // namespace
}  // namespace automodel::datasets

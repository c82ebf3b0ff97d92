#include "datasets/conversations/chat_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "core/file.h"
#include "core/text.h"
#include "datasets/conversations/conversation.h"
#include "datasets/encoders.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;
using automodel::test::source_file;
using automodel::test::TemporaryDirectory;

constexpr const char* kPlain =
    "{% for m in messages %}{{ m.role[0] }}({{ m.content }}){% endfor %}";
constexpr const char* kMarked =
    "{% for m in messages %}{{ m.role[0] }}({% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content }}){% endgeneration %}{% else %}{{ m.content }}){% endif %}{% endfor %}";

/// Ids of bytes as text: "_" where there is no label, "$" for eos and padding.
std::string text_of(const std::vector<int64_t>& ids) {
  std::string out;
  for (const int64_t id : ids) {
    out.push_back(id == kIgnoreIndex ? '_' : id == 256 ? '$' : static_cast<char>(id));
  }
  return out;
}

class ChatDatasetTest : public testing::Test {
 protected:
  ChatDatasetConfig config_for(const std::string& lines, const char* source = kPlain) const {
    ChatDatasetConfig config;
    config.path_or_dataset_id = {directory_.write("x.jsonl", lines)};
    config.chat_template = source;
    return config;
  }

  std::string error_for(const std::string& line, const char* source = kPlain) const {
    const ChatDatasetConfig config = config_for(line, source);
    const std::string text =
        error_of<InputError>([&] { ChatDataset(config, encoder_).findings(); });
    return replace_all(text, config.path_or_dataset_id[0], "x.jsonl");
  }

  TemporaryDirectory directory_;
  datasets::test::ByteEncoder encoder_;
};

constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}, )"
    R"({"role": "user", "content": "C"}, {"role": "assistant", "content": "D"}]})"
    "\n";

TEST_F(ChatDatasetTest, SaysWhatTheTemplateLeavesOut) {
  const std::string lines =
      std::string(kTwoTurns) +
      R"({"tools": [{"type": "function", "function": {"name": "mul"}}], "messages": [)"
      R"({"role": "user", "content": "A"}, {"role": "assistant", "content": "", "tool_calls": [)"
      R"({"type": "function", "function": {"name": "mul", "arguments": {}}}]}, )"
      R"({"role": "tool", "content": "9"}, {"role": "assistant", "content": "D"}]})"
      "\n";
  const auto left_out_by = [&](const std::string& source) {
    const std::vector<std::string> findings =
        ChatDataset(config_for(lines, source.c_str()), encoder_).findings();
    for (const std::string& finding : findings) {
      const size_t at = finding.find("x.jsonl:2: the chat template does not write ");
      if (at != std::string::npos) return finding.substr(at + 44, finding.find(';') - at - 44);
    }
    return std::string();
  };
  EXPECT_EQ(left_out_by(kPlain), "tools and tool_calls");
  EXPECT_EQ(left_out_by(std::string("{{ tools }}") + kPlain),
            "");  // a tool's name may be that of a call
  EXPECT_EQ(left_out_by(std::string("{{ tools | length if tools else 0 }}") + kPlain),
            "tool_calls");
  EXPECT_EQ(
      left_out_by(
          "{% for m in messages %}{{ m.role[0] }}({{ m.content }}{{ m.tool_calls }}){% endfor %}"),
      "tools");
}

TEST_F(ChatDatasetTest, ReadsMessagesAndShareGptConversations) {
  const std::string share_gpt =
      R"({"conversations": [{"from": "human", "value": "A"}, {"from": "gpt", "value": "B"}]})"
      "\n";
  const ChatDatasetConfig config = config_for(std::string(kTwoTurns) + share_gpt);
  const ChatDataset dataset(config, encoder_);
  EXPECT_EQ(dataset.size(), 2);
  EXPECT_EQ(text_of(dataset.at(0).input_ids), "u(A)a(B)u(C)a(D");
  EXPECT_EQ(text_of(dataset.at(1).input_ids), "u(A)a(B");
  ChatDatasetConfig sliced = config;
  sliced.split = "train[1:]";
  EXPECT_EQ(text_of(ChatDataset(sliced, encoder_).at(0).input_ids), "u(A)a(B");
  ChatDatasetConfig of_file = config;
  of_file.chat_template = directory_.write("own.jinja", kMarked);
  EXPECT_EQ(text_of(ChatDataset(of_file, encoder_).at(1).labels), "_____B)");
}

TEST_F(ChatDatasetTest, CountsTheAssistantsTurnsOnly) {
  // Without generation blocks what a turn adds counts, its header too.
  EXPECT_EQ(text_of(ChatDataset(config_for(kTwoTurns), encoder_).at(0).labels), "___a(B)____a(D)");
  EXPECT_EQ(text_of(ChatDataset(config_for(kTwoTurns, kMarked), encoder_).at(0).labels),
            "_____B)______D)");
  for (const char* source : {kPlain, kMarked}) {
    ChatDatasetConfig config = config_for(kTwoTurns, source);
    config.mask_history = true;
    EXPECT_EQ(text_of(ChatDataset(config, encoder_).at(0).labels),
              source == kPlain ? "___________a(D)" : "_____________D)");
  }
}

/// The last run of tokens that the model writes, without generation prompts.
TEST_F(ChatDatasetTest, AGenerationPromptEndsARunOfAnswers) {
  ChatDatasetConfig config = config_for(
      R"({"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}, )"
      R"({"role": "assistant", "content": "C"}]})"
      "\n",
      "{% for m in messages %}{{ m.role[0] }}({{ m.content }}){% endfor %}"
      "{% if add_generation_prompt %}a({% endif %}");
  config.mask_history = true;
  EXPECT_EQ(text_of(ChatDataset(config, encoder_).at(0).labels), "___a(B)a(C)");
  config.mask_generation_prompt = true;
  EXPECT_EQ(text_of(ChatDataset(config, encoder_).at(0).labels), "_________C)");
}

TEST_F(ChatDatasetTest, AnswersThatAreMarkedAsNoneToLearnDoNotCount) {
  const std::string marked =
      replace_all(kTwoTurns, R"("content": "B"})", R"("content": "B", "weight": 0})");
  const std::string share_gpt =
      R"({"conversations": [{"from": "human", "value": "A"}, )"
      R"({"from": "gpt", "value": "B", "train": false}, {"from": "human", "value": "C"}, )"
      R"({"from": "gpt", "value": "D", "train": true, "weight": 1}]})"
      "\n";
  for (const std::string& lines : {marked, share_gpt}) {
    EXPECT_EQ(text_of(ChatDataset(config_for(lines), encoder_).at(0).labels), "___________a(D)");
    EXPECT_EQ(text_of(ChatDataset(config_for(lines, kMarked), encoder_).at(0).labels),
              "_____________D)");
  }
  constexpr const char* kOneBlock =
      "{% generation %}{% for m in messages %}{{ m.content }}"
      "{% endfor %}{% endgeneration %}";
  EXPECT_EQ(error_for(marked, kOneBlock),
            "x.jsonl:1: the template writes 1 generation blocks for 2 messages of the assistant, "
            "so those with weight 0 cannot be told");
}

TEST_F(ChatDatasetTest, CutsAndPadsToSeqLength) {
  ChatDatasetConfig config = config_for(kTwoTurns, kMarked);
  config.seq_length = 7;
  config.truncation = Truncation::kToLength;
  EXPECT_EQ(text_of(ChatDataset(config, encoder_).at(0).labels), "_____B");
  config.seq_length = 4;  // nothing of the assistant is left in any row
  const ChatDataset cut(config, encoder_);
  EXPECT_FALSE(cut.at(0).has_label());
  EXPECT_EQ(error_of<NoLabelsError>([&] { cut.findings(); }),
            cat("none of the ", cut.size(), " conversations from ", cut.origin(0),
                " on has a token that counts in the loss: seq_length 4 cuts all of the assistant's "
                "turns off"));
  config = config_for(std::string(kTwoTurns) +
                          R"({"messages": [{"role": "user", "content": "AAAAAAAA"}, )"
                          R"({"role": "assistant", "content": "B"}]})"
                          "\n",
                      kMarked);
  config.seq_length = 7;
  config.truncation = Truncation::kToLength;
  const ChatDataset half(config, encoder_);
  EXPECT_TRUE(half.at(0).has_label());
  EXPECT_FALSE(half.at(1).has_label());  // and no other row is in its place
  EXPECT_EQ(half.at(1).row, 1);
  EXPECT_EQ(half.findings().front(),
            cat(half.origin(0),
                ": seq_length 7 cuts all of the assistant's turns off in 1 of the 2 "
                "conversations, which then train nothing"));
  config = config_for(kTwoTurns, kMarked);
  config.seq_length = 20;
  config.padding = Padding::kMaxLength;
  const Sample padded = ChatDataset(config, encoder_).at(0);
  EXPECT_EQ(text_of(padded.input_ids), "u(A)a(B)u(C)a(D)$$$$");
  EXPECT_EQ(text_of(padded.labels), "_____B)______D)_____");
  config.unshifted = true;
  EXPECT_EQ(text_of(ChatDataset(config, encoder_).at(0).labels), "______B)______D)____");
}

TEST_F(ChatDatasetTest, CheckReadsTheFirstRowsMessagesWhereTheSplitHasThem) {
  const std::string wrong =
      R"({"messages": [{"from": "human", "value": "A"}, {"from": "gpt", "value": "B"}]})"
      "\n";
  ChatDatasetConfig config = config_for(wrong + kTwoTurns);
  EXPECT_EQ(error_of<InputError>([&] { check(config); }),
            cat(config.path_or_dataset_id[0],
                ", first row: message 1: the role must be system, user, assistant or tool, found "
                "none"));
  config.split = "train[:1]";
  EXPECT_THAT(error_of<InputError>([&] { check(config); }),
              testing::HasSubstr(", first row: message 1: the role must be"));
  config.split = "train[1:]";
  check(config);
  EXPECT_THAT(error_of<InputError>([&] {
                check(config_for(R"({"messages": [{"role": "user", "content": "A"}]})"
                                 "\n"));
              }),
              testing::HasSubstr("nothing in this conversation is the assistant's"));
}

TEST_F(ChatDatasetTest, TellsOfASystemPromptBesideTheMessages) {
  const std::string lines =
      R"({"system": "Be brief.", "messages": [{"role": "user", "content": "A"}, )"
      R"({"role": "assistant", "content": "B"}]})"
      "\n";
  const ChatDataset dataset(config_for(lines, kMarked), encoder_);
  EXPECT_EQ(dataset.findings().front(),
            cat(dataset.origin(0),
                ": the column 'system' is not read; a system prompt is the first "
                "of the messages, with the role system"));
  const std::string both = replace_all(lines, R"([{"role": "user")",
                                       R"([{"role": "system", "content": "X"}, {"role": "user")");
  const ChatDataset with_both(config_for(both, kMarked), encoder_);
  for (const std::string& finding : with_both.findings()) {
    EXPECT_THAT(finding, testing::Not(testing::HasSubstr("system prompt")));
  }
  const ChatDataset without(config_for(kTwoTurns, kMarked), encoder_);
  for (const std::string& finding : without.findings()) {
    EXPECT_THAT(finding, testing::Not(testing::HasSubstr("system prompt")));
  }
}

TEST_F(ChatDatasetTest, SaysWhyConversationsHaveNoLabel) {
  const std::string untrained =
      R"({"messages": [{"role": "user", "content": "AAAAAAAAAAAAAAAAAAAA"}, )"
      R"({"role": "assistant", "content": "B", "weight": 0}]})"
      "\n";
  ChatDatasetConfig config = config_for(untrained, kMarked);
  config.seq_length = 20;
  config.truncation = Truncation::kToLength;
  const ChatDataset dataset(config, encoder_);
  EXPECT_THAT(error_of<NoLabelsError>([&] { dataset.findings(); }),
              testing::HasSubstr(": all of the assistant's turns are left out of it"));
  // Beside others it is no fault of seq_length.
  config.path_or_dataset_id = {directory_.write("y.jsonl", untrained + kTwoTurns)};
  const ChatDataset with_others(config, encoder_);
  EXPECT_FALSE(with_others.at(0).has_label());
  for (const std::string& finding : with_others.findings()) {
    EXPECT_THAT(finding, testing::Not(testing::HasSubstr("seq_length")));
  }
}

TEST_F(ChatDatasetTest, RefusesATemplateThatWritesEarlierTurnsAnew) {
  const std::string text = error_for(
      kTwoTurns,
      "{% for m in messages %}{{ m.role[0] }}{% if loop.last %}!{% endif %}{{ m.content }}"
      "{% endfor %}");
  EXPECT_NE(text.find("x.jsonl:1: the template writes the first 1 messages differently when "
                      "others follow"),
            std::string::npos)
      << text;
}

TEST_F(ChatDatasetTest, RowsThatAreNoConversationsAreNamed) {
  EXPECT_EQ(error_for("{\"messages\": 3}\n"),
            "x.jsonl:1: a row must hold a list `messages` (OpenAI) or `conversations` (ShareGPT)");
  EXPECT_EQ(error_for("{\"messages\": []}\n"), "x.jsonl:1: the conversation has no message");
  EXPECT_EQ(error_for("{\"messages\": [7]}\n"),
            "x.jsonl:1: message 1 must be an object with role and content, found an integer");
  EXPECT_EQ(error_for("{\"messages\": [{\"role\": \"robot\", \"content\": \"\"}]}\n"),
            "x.jsonl:1: message 1: the role must be system, user, assistant or tool, found "
            "\"robot\"");
  EXPECT_EQ(error_for("{\"messages\": [{\"role\": \"user\", \"content\": 5}]}\n"),
            "x.jsonl:1: message 1: content must be text or a list of parts, found an integer");
  EXPECT_EQ(
      error_for("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}\n"),
      "x.jsonl:1: message 1: a part of the content has no `text`; images, sound and video "
      "are not read here");
  EXPECT_EQ(error_for("{\"conversations\": [{\"from\": \"observation\", \"value\": \"\"}]}\n"),
            "x.jsonl:1: message 1: `from` must be system, human, user, gpt, assistant, chatgpt, "
            "model or bot, found \"observation\"; make_agent_chat_dataset is for traces of tool "
            "calls");
  EXPECT_EQ(error_for("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n"),
            "x.jsonl:1: nothing in this conversation is the assistant's, so nothing of it can be "
            "learned");
  EXPECT_EQ(error_for(kTwoTurns, "{{ raise_exception('roles must alternate') }}"),
            "x.jsonl:1: chat_template:1:19: error: roles must alternate");
}

TEST_F(ChatDatasetTest, ToolsAndToolCallsReachTheTemplate) {
  const std::string line =
      R"({"tools": "[{\"name\": \"f\"}]", "messages": [{"role": "user", "content": null}, )"
      R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", )"
      R"("arguments": "{\"x\": 1}"}}]}]})"
      "\n";
  const ChatDatasetConfig config = config_for(
      line,
      "{{ tools | tojson }}{% for m in messages %}{% for c in m.tool_calls or [] %}{% generation %}"
      "{{ c.id }}{{ c.type }}{{ c.function.arguments.x }}{% endgeneration %}{% endfor %}"
      "{% endfor %}");
  EXPECT_EQ(text_of(ChatDataset(config, encoder_).at(0).input_ids),
            "[{\"name\": \"f\"}]call_0function");
}

TEST_F(ChatDatasetTest, ArgumentsThatAreNoJsonStayText) {
  const auto written = [&](const char* arguments) {
    const ChatDatasetConfig config = config_for(
        cat(R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", )",
            R"("arguments": )", arguments, "}}]}]}\n"),
        "{% for m in messages %}{% generation %}{{ m.tool_calls[0].function.arguments | tojson }}."
        "{% endgeneration %}{% endfor %}");
    return text_of(ChatDataset(config, encoder_).at(0).input_ids);
  };
  EXPECT_EQ(written(R"("")"), "\"\"");
  EXPECT_EQ(written(R"("hello")"), "\"hello\"");
  EXPECT_EQ(written(R"("{\"a\": 1}")"), "{\"a\": 1}");
  EXPECT_EQ(written(R"("{\"a\": ")"), "\"{\\\"a\\\": \"");
}

/// As AutoModel writes arguments: templates of DeepSeek's kind add them to a text.
TEST_F(ChatDatasetTest, TemplatesThatTakeArgumentsAsTextsGetTexts) {
  const auto written = [&](const char* arguments, const char* expression) {
    const ChatDatasetConfig config = config_for(
        cat(R"({"messages": [{"role": "user", "content": "A"}, {"role": "assistant", )",
            R"("tool_calls": [{"function": {"name": "f", "arguments": )", arguments, "}}]}]}\n"),
        cat("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}[", expression,
            "]{% endfor %}{% endfor %}")
            .c_str());
    const Sample sample = ChatDataset(config, encoder_).at(0);
    return text_of(sample.input_ids) + "|" + text_of(sample.labels);
  };
  const char* text = R"("{\"x\":  \"\u00e9\"}")";
  const char* object = R"({"x": ["\u00e9", true]})";
  const char* added = "{{ 'do ' + c.function.arguments }}";
  EXPECT_EQ(written(text, added), "A[do {\"x\":  \"é\"}|[do {\"x\":  \"é\"}]");
  EXPECT_EQ(written(object, added), R"(A[do {"x": ["\u00e9", true]}|[do {"x": ["\u00e9", true]}])");
  // One that writes an object as Python prints it was written for texts too.
  const char* printed = "{{ c.function.arguments }}";
  EXPECT_EQ(written(object, printed), R"(A[{"x": ["\u00e9", true]}|[{"x": ["\u00e9", true]}])");
  EXPECT_EQ(written(text, printed), "A[{\"x\":  \"é\"}|[{\"x\":  \"é\"}]");
  // Others get objects, whatever a row has.
  const char* dumped = "{{ c.function.arguments | tojson }}";
  EXPECT_EQ(written(text, dumped), "A[{\"x\": \"\u00e9\"}|[{\"x\": \"\u00e9\"}]");
  const char* either =
      "{{ c.function.arguments if c.function.arguments is string else "
      "c.function.arguments | tojson }}";
  EXPECT_EQ(written(text, either), "A[{\"x\": \"\u00e9\"}|[{\"x\": \"\u00e9\"}]");
  // What a template takes does not depend on a row: not on calls that it leaves out, on white
  // space that it takes off, or on a text that reads like an object.
  EXPECT_EQ(written("\"{\\\"x\\\": 1}\\n\"", "{{ c.function.arguments | trim }}"),
            R"(A[{"x": 1}|[{"x": 1}])");
  EXPECT_EQ(written(R"("{\"x\":1}")",
                    "{{ \"{'x': 1}\" }}{{ c.function.arguments if "
                    "c.function.arguments is string else "
                    "c.function.arguments | tojson }}"),
            R"(A[{'x': 1}{"x": 1}|[{'x': 1}{"x": 1}])");
  EXPECT_EQ(written(R"("[1, 2]")", dumped), "A[[1, 2]|[[1, 2]]");
  const std::string row =
      R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", )"
      R"("arguments": {"x": 1}}}]}]})"
      "\n";
  // What a template says to objects is told if it fails with texts too.
  EXPECT_EQ(error_for(row, "{{ messages[0].tool_calls[0].function.arguments + 1 }}"),
            "x.jsonl:1: chat_template:1:49: error: unsupported operand type(s) for +: 'dict' and "
            "'int'");
}

/// As transformers' apply_chat_template chooses among a tokenizer's templates.
TEST_F(ChatDatasetTest, ConversationsWithToolsTakeTheTemplateForTools) {
  const std::string turns = R"("messages": [{"role": "user", "content": "A"}, )"
                            R"({"role": "assistant", "content": "B"}]})"
                            "\n";
  const std::string lines =
      "{" + turns + R"({"tools": [{"name": "f"}], )" + turns + R"({"tools": [], )" + turns;
  datasets::test::ByteEncoder encoder;
  encoder.has_template = true;
  encoder.template_text = kPlain;
  encoder.tool_template = std::string("{{ tools[0].name }}!") + kMarked;
  ChatDatasetConfig config = config_for(lines);
  config.chat_template = std::nullopt;
  const ChatDataset own(config, encoder);
  EXPECT_EQ(text_of(own.at(0).labels), "___a(B)");
  EXPECT_EQ(text_of(own.at(1).input_ids), "f!u(A)a(B");
  EXPECT_EQ(text_of(own.at(1).labels), "_______B)");
  EXPECT_EQ(text_of(own.at(2).input_ids), "u(A)a(B");

  Json templates = Json::array();
  for (const auto& [name, text] : {std::pair("tool_use", *encoder.tool_template),
                                   std::pair("default", encoder.template_text)}) {
    Json named = Json::object();
    named["name"] = name;
    named["template"] = text;
    templates.push_back(std::move(named));
  }
  Json object = Json::object();
  object["chat_template"] = std::move(templates);
  config.chat_template = directory_.write("tokenizer_config.json", object.dump());
  EXPECT_EQ(text_of(ChatDataset(config, encoder).at(1).input_ids), "f!u(A)a(B");

  std::filesystem::create_directories(directory_.file("folder/additional_chat_templates"));
  directory_.write("folder/chat_template.jinja", kPlain);
  directory_.write("folder/additional_chat_templates/tool_use.jinja", *encoder.tool_template);
  config.chat_template = directory_.file("folder");
  EXPECT_EQ(text_of(ChatDataset(config, encoder).at(0).input_ids), "u(A)a(B");
  EXPECT_EQ(text_of(ChatDataset(config, encoder).at(1).input_ids), "f!u(A)a(B");
  directory_.write("folder/additional_chat_templates/default.jinja", std::string("d") + kPlain);
  EXPECT_EQ(text_of(ChatDataset(config, encoder).at(0).input_ids), "du(A)a(B");
  // A template for tools alone is none for other conversations.
  std::filesystem::remove(directory_.file("folder/chat_template.jinja"));
  std::filesystem::remove(directory_.file("folder/additional_chat_templates/default.jinja"));
  EXPECT_EQ(text_of(ChatDataset(config, encoder).at(1).input_ids), "f!u(A)a(B");
  EXPECT_NE(error_of<InputError>([&] {
              ChatDataset(config, encoder).at(0);
            }).find("has a chat template for conversations with tools alone"),
            std::string::npos);
}

TEST_F(ChatDatasetTest, WhatATemplateWritesBeforeTheFirstMessageIsNobodys) {
  const std::string line =
      R"({"messages": [{"role": "assistant", "content": "A"}, {"role": "user", "content": "B"}]})"
      "\n";
  const ChatDatasetConfig config =
      config_for(line,
                 "{% if messages[0].role != 'system' %}s(You are kind.){% endif %}"
                 "{% for m in messages %}{{ m.role[0] }}({{ m.content }}){% endfor %}");
  const Sample sample = ChatDataset(config, encoder_).at(0);
  EXPECT_EQ(text_of(sample.input_ids), "s(You are kind.)a(A)u(B");
  EXPECT_EQ(text_of(sample.labels), "_______________a(A)____");
}

TEST_F(ChatDatasetTest, GenerationBlocksAreFoundInTextThatTheTokenizerNormalizes) {
  const std::string folder = source_file("tests/datasets/data/tokenizer");
  Json tokenizer = Json::parse_file(path_join(folder, "tokenizer.json"));
  tokenizer["normalizer"] = Json::parse(R"({"type": "NFC"})", "normalizer");
  directory_.write("tokenizer.json", tokenizer.dump());
  directory_.write("tokenizer_config.json", read_file(path_join(folder, "tokenizer_config.json")));
  const TokenizerEncoder encoder(tokenizers::Tokenizer::load(directory_.path()));
  const auto sample = [&](const std::string& user, const std::string& assistant) {
    Json row = Json::object();
    row["messages"] =
        Json(Json::Array{make_message("user", user), make_message("assistant", assistant)});
    return ChatDataset(config_for(row.dump() + "\n", kMarked), encoder).at(0);
  };
  const std::string composed = "caf\u00e9", decomposed = "cafe\u0301";
  const Sample wanted = sample(composed, "no " + composed);
  for (const auto& [user, assistant] :
       {std::pair(decomposed, composed), std::pair(composed, decomposed),
        std::pair(decomposed, decomposed)}) {
    const Sample found = sample(user, "no " + assistant);
    EXPECT_EQ(found.input_ids, wanted.input_ids);
    EXPECT_EQ(found.labels, wanted.labels);
  }
  // A block that begins with a mark of the letter before it cannot be found.
  EXPECT_THROW(ChatDataset(config_for(R"({"messages": [{"role": "assistant", "content": ")"
                                      "\u0301"
                                      R"(b"}]})"
                                      "\n",
                                      "e{% for m in messages %}{% generation %}{{ m.content }}"
                                      "{% endgeneration %}{% endfor %}"),
                           encoder)
                   .at(0),
               InputError);
}

TEST_F(ChatDatasetTest, TextsNeverBecomeSpecialTokens) {
  const TokenizerEncoder encoder(
      tokenizers::Tokenizer::load(source_file("tests/datasets/data/tokenizer")));
  ChatDatasetConfig config = config_for(
      R"({"messages": [{"role": "user", "content": "a</s>b"}, {"role": "assistant", "content": "c"}]})"
      "\n",
      "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}");
  EXPECT_EQ(error_of<InputError>([&] { ChatDataset(config, encoder).findings(); }),
            config.path_or_dataset_id[0] +
                ":1: message 1: the text holds the special token </s>, which would end or begin a "
                "turn; remove it, or set allow_special_tokens_in_text: true to have it read as "
                "that token");
  config.allow_special_tokens_in_text = true;
  const Sample sample = ChatDataset(config, encoder).at(0);
  EXPECT_EQ(std::ranges::count(sample.input_ids, *encoder.eos_token_id()), 2);
}

/// Whichever form a template takes.
TEST_F(ChatDatasetTest, ArgumentsOfCallsHoldNoSpecialTokensEither) {
  const TokenizerEncoder encoder(
      tokenizers::Tokenizer::load(source_file("tests/datasets/data/tokenizer")));
  for (const char* arguments :
       {R"("{\"a\": \"</s>\", \"a\": \"x\"}")", R"({"</s>": 1})", R"("{\"a\": \"\\u003c/s>\"}")"}) {
    const ChatDatasetConfig config = config_for(
        cat(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", )",
            R"("tool_calls": [{"function": {"name": "f", "arguments": )", arguments, "}}]}]}\n"),
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments }}{% endfor %}{{ eos_token }}{% endfor %}");
    EXPECT_NE(error_of<InputError>([&] {
                ChatDataset(config, encoder).findings();
              }).find(":1: message 2: the text holds the special token </s>"),
              std::string::npos)
        << arguments;
  }
}

TEST_F(ChatDatasetTest, TurnsThatNeverEndAreAFinding) {
  const TokenizerEncoder encoder(
      tokenizers::Tokenizer::load(source_file("tests/datasets/data/tokenizer")));
  const auto finding = [&](const char* source) {
    const ChatDatasetConfig config = config_for(kTwoTurns, source);
    const std::string text = join(ChatDataset(config, encoder).findings(), "\n");
    return replace_all(text.empty() ? "none" : text, config.path_or_dataset_id[0], "x.jsonl");
  };
  EXPECT_EQ(finding("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"), "none");
  EXPECT_EQ(finding("{% for m in messages %}{{ m.content }}.{% endfor %}"),
            "x.jsonl:1: in none of the first 1 conversations the assistant is trained to write a "
            "special token, so the model will not learn to end its turn; the template has no eos "
            "token (</s>)");
  EXPECT_EQ(finding("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
                    "{{ eos_token }}{% endfor %}"),
            "x.jsonl:1: in none of the first 1 conversations the assistant is trained to write a "
            "special token, so the model will not learn to end its turn; the template writes the "
            "eos token (</s>) outside of what counts in the loss");
}

TEST_F(ChatDatasetTest, MakesTheSamplesOfTransformers) {
  const TokenizerEncoder encoder(
      tokenizers::Tokenizer::load(source_file("tests/datasets/data/tokenizer")));
  const Json goldens = Json::parse_file(source_file("tests/datasets/data/chat.json"));
  for (const Json& golden : goldens.as_array()) {
    SCOPED_TRACE(golden.dump());
    ChatDatasetConfig config = config_for(golden.at("row").dump() + "\n");
    config.chat_template = golden.at("template").as_string();
    config.mask_history = golden.at("mask_history").as_bool();
    if (!golden.at("seq_length").is_null()) {
      config.seq_length = golden.at("seq_length").as_int();
      config.truncation = Truncation::kToLength;
    }
    const Sample sample = ChatDataset(config, encoder).at(0);
    EXPECT_EQ(sample.input_ids, datasets::test::integers(golden.at("input_ids")));
    EXPECT_EQ(sample.labels, datasets::test::integers(golden.at("labels")));
  }
  EXPECT_GT(goldens.size(), 10U);
}

/// The contents of the users' messages, which the template writes.
std::string order_of(const ChatDatasetConfig& config, const TextEncoder& encoder) {
  const ChatDataset dataset(config, encoder);
  std::string out;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    out += text_of(dataset.at(i).input_ids).substr(2, 1);
  }
  return out;
}

std::string ten_rows() {
  std::string lines;
  for (char c = '0'; c <= '9'; ++c) {
    lines += R"({"messages": [{"role": "user", "content": ")" + std::string(1, c) +
             R"("}, {"role": "assistant", "content": "x"}]})" + "\n";
  }
  return lines;
}

TEST_F(ChatDatasetTest, ShufflesTheWholeSplitBeforeItsSlice) {
  ChatDatasetConfig config = config_for(ten_rows());
  EXPECT_EQ(order_of(config, encoder_), "0123456789");
  // numpy.random.default_rng(42).permutation(10)
  config.shuffle_seed = 42;
  EXPECT_EQ(order_of(config, encoder_), "5607324918");
  config.split = "train[:4]";
  EXPECT_EQ(order_of(config, encoder_), "5607");
  config.split = "train[4:]";
  EXPECT_EQ(order_of(config, encoder_), "324918");
  // Upstream has the datasets package take other slices, and shuffles what it gets.
  config.split = "train[:40%]";
  EXPECT_EQ(order_of(config, encoder_), "3210");
  config.split = "train[:2]+train[8:]";
  EXPECT_EQ(order_of(config, encoder_), "9810");
}

TEST_F(ChatDatasetTest, LeavesOutLinesThatAreNotJsonWhenAsked) {
  const std::string rows = ten_rows();
  const size_t second = rows.find('\n') + 1;
  ChatDatasetConfig config =
      config_for("{broken\n" + rows.substr(0, second) + "also broken\n" + rows.substr(second));
  EXPECT_NE(error_of<InputError>([&] { check(config); }).find("x.jsonl:1: not valid JSON"),
            std::string::npos);
  config.skip_invalid_samples = true;
  EXPECT_EQ(check(config).columns, std::vector<std::string>{"messages"});
  EXPECT_EQ(order_of(config, encoder_), "0123456789");
  EXPECT_EQ(replace_all(ChatDataset(config, encoder_).findings()[0], config.path_or_dataset_id[0],
                        "x.jsonl"),
            "x.jsonl:1: 2 lines are not JSON and are left out (skip_invalid_samples)");
  EXPECT_EQ(ChatDataset(config, encoder_).origin(1), config.path_or_dataset_id[0] + ":4");
  config.split = "train[1:3]";
  EXPECT_EQ(order_of(config, encoder_), "12");
  // A row that is JSON and no object is wrong all the same.
  config = config_for("5\n");
  config.skip_invalid_samples = true;
  EXPECT_NE(error_of<InputError>([&] { check(config); }).find("a row must be a JSON object"),
            std::string::npos);
}

TEST_F(ChatDatasetTest, TellsWhatAMaskDoesNotFind) {
  const auto finding = [&](const char* source, const char* reasoning, auto set) {
    ChatDatasetConfig config = config_for(
        std::string(R"({"messages": [{"role": "user", "content": "A"}, {"role": "assistant", )") +
            reasoning + R"("content": "B"}]})" + "\n",
        source);
    set(config);
    return replace_all(ChatDataset(config, encoder_).findings()[0], config.path_or_dataset_id[0],
                       "x.jsonl");
  };
  const char* thought = R"("reasoning_content": "hm", )";
  EXPECT_EQ(finding(kPlain, thought, [](auto&) {}),
            "x.jsonl:1: message 2: the template does not write reasoning_content, so it is not "
            "trained on");
  EXPECT_EQ(finding("{% for m in messages %}{{ m.content }}{% endfor %}{# reasoning_content #}",
                    thought, [](auto& config) { config.mask_reasoning_content = true; }),
            "x.jsonl:1: message 2: the template does not write this message's reasoning_content, "
            "so mask_reasoning_content does nothing here");
  EXPECT_EQ(finding("{% for m in messages %}{% generation %}{{ loop.last }}{{ m.content }}"
                    "{% endgeneration %}{% endfor %}",
                    "", [](auto& config) { config.mask_generation_prompt = true; }),
            "x.jsonl:1: message 2: mask_generation_prompt does nothing here, because the template "
            "writes what comes before the message differently without it");
}

TEST_F(ChatDatasetTest, ATemplateFileMayBeATokenizersConfiguration) {
  ChatDatasetConfig config = config_for(kTwoTurns);
  Json object = Json::object();
  object["chat_template"] = kMarked;
  config.chat_template = directory_.write("tokenizer_config.json", object.dump());
  EXPECT_EQ(text_of(ChatDataset(config, encoder_).at(0).labels), "_____B)______D)");
}

}  // namespace
}  // namespace automodel::datasets

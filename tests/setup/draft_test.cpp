#include "setup/draft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::setup {
namespace {

using test::error_of;
using testing::HasSubstr;
using testing::Not;

DataFacts facts_of(const char* row) {
  return facts_of_row(Json::parse(row, "row"), "rows.jsonl");
}

TEST(DraftTest, ColumnsDecideWhatDataAre) {
  EXPECT_EQ(facts_of(R"({"messages": []})").kind, DataKind::kConversations);
  EXPECT_EQ(facts_of(R"({"conversations": [], "id": 1})").kind, DataKind::kConversations);
  EXPECT_EQ(facts_of(R"({"text": "a"})").kind, DataKind::kTextRows);
  const DataFacts alpaca = facts_of(R"({"output": "o", "input": "i", "instruction": "q"})");
  EXPECT_EQ(alpaca.kind, DataKind::kColumns);
  EXPECT_EQ(alpaca.question, "instruction");
  EXPECT_EQ(alpaca.context, "input");
  EXPECT_EQ(alpaca.answer, "output");
  const DataFacts pair = facts_of(R"({"input": "i", "target": "t"})");
  EXPECT_EQ(pair.question, "input");
  EXPECT_EQ(pair.context, "");
  EXPECT_EQ(pair.answer, "target");
}

TEST(DraftTest, RowsWithoutKnownColumnsAreRefusedWithTheirNames) {
  EXPECT_THAT(error_of<InputError>([] { facts_of(R"({"a": "x", "answer": 3, "b": "y"})"); }),
              HasSubstr("--data rows.jsonl: no sample can be made of the columns a, answer, b: "
                        "column 'answer' holds an integer;"));
  EXPECT_THAT(error_of<InputError>([] { facts_of(R"({"a": "x", "b": "y"})"); }),
              HasSubstr("the columns a, b; needed: "));
  EXPECT_THAT(
      error_of<InputError>([] { facts_of(R"({"prompt": [{"role": "user"}], "completion": []})"); }),
      HasSubstr("column 'prompt' holds an array; turns of a conversation are one list in a column "
                "'messages';"));
  const auto of_csv = [](const char* row) {
    return facts_of_row(Json::parse(row, "row"), "rows.csv", {}, true);
  };
  EXPECT_THAT(error_of<InputError>([&] { of_csv(R"({"question;answer": "a;b"})"); }),
              HasSubstr("fields of a .csv file are separated by commas"));
  EXPECT_EQ(of_csv(R"({"question": "a", "answer": 72})").answer, "answer");
  EXPECT_EQ(of_csv(R"({"question": true, "answer": null})").kind, DataKind::kColumns);
}

TEST(DraftTest, ColumnsOfOtherNamesAreNamedByThePerson) {
  const Json row = Json::parse(R"({"Ask": "q", "Reply": "a", "About": "c", "text": "t"})", "row");
  const auto facts_for = [&](const char* columns) {
    return facts_of_row(row, "rows.jsonl", parse_columns(columns));
  };
  const DataFacts pair = facts_for("question=Ask, answer=Reply");
  EXPECT_EQ(pair.kind, DataKind::kColumns);
  EXPECT_EQ(pair.question + "|" + pair.answer + "|" + pair.context, "Ask|Reply|");
  EXPECT_EQ(facts_for("question=Ask,answer=Reply,context=About").context, "About");
  EXPECT_EQ(facts_for("text=About").text_column, "About");
  EXPECT_EQ(facts_for("text=About").kind, DataKind::kTextRows);
  EXPECT_EQ(facts_for("").text_column, "text");
  EXPECT_THAT(
      error_of<UserError>([&] { facts_for("question=Ask,answer=Replay"); }),
      HasSubstr(
          "has no column 'Replay' (its columns: Ask, Reply, About, text); did you mean 'Reply'?"));
  for (const char* wrong : {"question=Ask", "answer=Reply", "context=About",
                            "text=About,question=Ask,answer=Reply", "text=a,context=b"}) {
    EXPECT_THAT(error_of<UserError>([&] { parse_columns(wrong); }), HasSubstr("needed: question="))
        << wrong;
  }
  for (const char* wrong : {"ask=Ask", "question", "question=", "question=a,,answer=b"}) {
    EXPECT_THAT(error_of<UserError>([&] { parse_columns(wrong); }),
                HasSubstr("is none of question"))
        << wrong;
  }
}

DraftFacts row_facts(int64_t num_rows, DataKind kind = DataKind::kColumns) {
  DraftFacts facts;
  facts.model = {.name = "/m",
                 .folder = "/m",
                 .architecture = "LlamaForCausalLM",
                 .num_positions = 4096,
                 .has_weights = true,
                 .has_tokenizer = true};
  facts.data = DataFacts{.name = "/rows.jsonl",
                         .kind = kind,
                         .question = "q",
                         .answer = "a",
                         .columns = {"q", "a"},
                         .num_rows = num_rows};
  return facts;
}

TEST(DraftTest, ClassesAreThoseOfAllRows) {
  const test::TemporaryDirectory folder;
  const auto classes_of = [&](const std::string& rows, const ClassColumns& named = {}) {
    const datasets::RowSource source({.paths = {folder.write("rows.jsonl", rows)}});
    return look_at_classes(source, named, "rows.jsonl");
  };
  const ClassFacts names = classes_of(
      "{\"sentence1\": \"a\", \"sentence2\": \"b\", \"label\": \"same\"}\n"
      "{\"sentence1\": \"a\", \"sentence2\": \"c\", \"label\": \"other\"}\n");
  EXPECT_EQ(names.columns.text + names.columns.pair + names.columns.label,
            "sentence1sentence2label");
  EXPECT_EQ(names.names, (std::vector<std::string>{"other", "same"}));
  EXPECT_EQ(names.num_classes, 2);
  const ClassFacts numbers =
      classes_of("{\"body\": \"a\", \"kind\": 3}\n{\"body\": \"b\", \"kind\": 0}\n",
                 {.text = "body", .pair = "", .label = "kind"});
  EXPECT_TRUE(numbers.names.empty());
  EXPECT_EQ(numbers.num_classes, 4);
  const auto error = [&](const std::string& rows) {
    return error_of<InputError>([&] { classes_of(rows); });
  };
  EXPECT_THAT(error("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\", \"label\": \"b\"}\n"),
              HasSubstr("rows.jsonl:2: column 'label' has names and numbers in turn"));
  EXPECT_THAT(error("{\"text\": \"a\", \"label\": -1}\n"), HasSubstr("'label' is -1: a class is"));
  EXPECT_THAT(error("{\"text\": \"a\", \"label\": 1}\n"), HasSubstr("all rows have one class"));
  EXPECT_THAT(error("{\"text\": \"a\", \"label\": 4000}\n"), HasSubstr("more than 1000 values"));
  EXPECT_THAT(error("{\"words\": \"a\", \"label\": 1}\n"),
              HasSubstr("no text with a class is found in the columns words, label"));
}

TEST(DraftTest, AnswersEndWhereTheTokenizerHasAToken) {
  const DraftRequest request{.task = "sft", .model = "/m", .data = "rows.jsonl"};
  DraftFacts facts = row_facts(100);
  EXPECT_THAT(draft_text(request, facts), Not(HasSubstr("add_eos_token")));
  facts.of_tokenizer.has_eos_token = true;
  EXPECT_THAT(draft_text(request, facts), HasSubstr("    add_eos_token: true  #"));
}

TEST(DraftTest, QuestionsAndAnswersTakeTheTokenizersTemplate) {
  const DraftRequest request{.task = "sft", .model = "/m", .data = "rows.jsonl"};
  DraftFacts facts = row_facts(100);
  EXPECT_THAT(draft_text(request, facts), Not(HasSubstr("use_hf_chat_template")));
  facts.of_tokenizer = {.has_chat_template = true, .has_eos_token = true};
  const std::string text = draft_text(request, facts);
  EXPECT_THAT(text, HasSubstr("  use_hf_chat_template: true  #"));
  EXPECT_THAT(text, Not(HasSubstr("add_eos_token")));  // the template ends a turn
  facts.data->context = "input";
  EXPECT_THAT(draft_text(request, facts),
              HasSubstr("    context: input  # becomes the system turn"));
}

TEST(DraftTest, ASingleShortSampleIsEnough) {
  DraftFacts facts = row_facts(1);
  facts.model.num_positions = 512;
  const DraftRequest request{.task = "sft", .model = "/m", .data = "rows.jsonl"};
  EXPECT_THAT(draft_text(request, facts), HasSubstr("local_batch_size: 1\n"));
  facts.data->num_rows = 8;
  EXPECT_THAT(draft_text(request, facts), HasSubstr("local_batch_size: 2\n"));
}

TEST(DraftTest, BatchesFillAllRanksAndFewRowsGetSmallOnes) {
  DraftRequest request{.task = "sft", .model = "/m", .data = "rows.jsonl", .num_ranks = 3};
  const std::string many = draft_text(request, row_facts(100000));
  EXPECT_THAT(many, HasSubstr("global_batch_size: 18\n"));
  EXPECT_THAT(many, HasSubstr("seq_length: 2048 "));
  EXPECT_THAT(many, HasSubstr("lr_warmup_steps: 10\n"));
  EXPECT_THAT(many, HasSubstr("validation_dataset:"));
  const std::string few = draft_text(request, row_facts(30));
  EXPECT_THAT(few, HasSubstr("global_batch_size: 3\n"));
  EXPECT_THAT(few, HasSubstr("lr_warmup_steps: 1\n"));
  EXPECT_THAT(few, Not(HasSubstr("validation_dataset:")));
  EXPECT_EQ(error_of<UserError>([&] { draft_text(request, row_facts(2)); }),
            "--data rows.jsonl makes 2 samples, too few for 3 ranks with 1 each");
}

TEST(DraftTest, SavesAndValidationsFollowFromTheLengthOfTheRun) {
  const DraftRequest request{.task = "sft", .model = "/m", .data = "rows.jsonl"};
  const std::string many = draft_text(request, row_facts(100000));
  EXPECT_THAT(many, HasSubstr("ckpt_every_steps: 200\n  val_every_steps: 50\n"));
  const std::string some = draft_text(request, row_facts(800));  // 47 steps
  EXPECT_THAT(some, HasSubstr("ckpt_every_steps: 24\n  val_every_steps: 12\n"));
  const std::string few = draft_text(request, row_facts(12));  // 12 steps
  EXPECT_THAT(few, HasSubstr("ckpt_every_steps: 6\n\n"));
  EXPECT_THAT(draft_text(request, row_facts(1)), HasSubstr("ckpt_every_steps: 1\n"));
}

TEST(DraftTest, TasksThatTheDataCannotServeAreRefused) {
  DraftRequest request{.task = "pretrain", .model = "m", .data = "d"};
  EXPECT_EQ(error_of<UserError>([&] { draft_text(request, row_facts(100)); }),
            "--task pretrain reads texts, and --data d has none (its columns: q, a); --task sft or "
            "chat trains on it");
  request.task = "chat";
  EXPECT_THAT(error_of<UserError>([&] { draft_text(request, row_facts(100)); }),
              HasSubstr("has no messages or conversations (its columns: q, a)"));
  request.task = "sft";
  EXPECT_THAT(
      error_of<UserError>([&] { draft_text(request, row_facts(100, DataKind::kTextRows)); }),
      HasSubstr("--task pretrain trains on texts"));
  DraftFacts empty = row_facts(100);
  empty.model.has_weights = false;
  EXPECT_THAT(error_of<UserError>([&] { draft_text(request, empty); }),
              HasSubstr("--model m has no weights (safetensors)"));
}

TEST(DraftTest, NamesThatYamlWouldReadOtherwiseAreQuoted) {
  DraftFacts facts = row_facts(100);
  facts.data->question = "no";
  facts.data->answer = "3";
  facts.data->name = "/data/a: #b.jsonl";
  const std::string text = draft_text({.task = "sft", .model = "m", .data = "d"}, facts);
  EXPECT_THAT(text, HasSubstr("question: \"no\"\n    answer: \"3\"\n"));
  EXPECT_THAT(text, HasSubstr("path_or_dataset_id: \"/data/a: #b.jsonl\"\n"));
}

TEST(DraftTest, WhatIsMissingIsAskedForInTurn) {
  DraftRequest request{.model = "m"};
  std::istringstream answers("distill\n\n /data/rows.jsonl \n/teacher\n");
  std::ostringstream questions;
  ask_for_missing(request, answers, questions);
  EXPECT_EQ(request.task, "distill");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.data, "/data/rows.jsonl");
  EXPECT_EQ(request.teacher, "/teacher");
  EXPECT_THAT(questions.str(), HasSubstr("What for (pretrain, sft, chat, lora, qlora, distill, "
                                         "classify, embed, benchmark)? Data (file"));
}

TEST(DraftTest, AnswersThatEndAreAnErrorAndWrongTasksToo) {
  DraftRequest request;
  std::istringstream wrong("stf\n"), none("");
  std::ostringstream questions;
  EXPECT_THAT(error_of<UserError>([&] { ask_for_missing(request, wrong, questions); }),
              HasSubstr("unknown task 'stf'; did you mean 'sft'?"));
  request = {};
  EXPECT_EQ(error_of<UserError>([&] { ask_for_missing(request, none, questions); }),
            "no answer; --task says it on the command line");
}

TEST(DraftTest, ABenchmarkAsksForNoData) {
  DraftRequest request{.task = "benchmark"};
  std::istringstream answers("/m\n");
  std::ostringstream questions;
  ask_for_missing(request, answers, questions);
  EXPECT_EQ(request.model, "/m");
  EXPECT_EQ(request.data, "");
}

}  // namespace
}  // namespace automodel::setup

#include "datasets/texts/column_mapped.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "core/file.h"
#include "datasets/encoders.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "support/errors.h"
#include "support/temporary_directory.h"
#include "tokenizers/unicode.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;
using automodel::test::TemporaryDirectory;
using testing::ElementsAre;
using Config = ColumnMappedTextInstructionDatasetConfig;

Config config_for(const std::string& path) {
  Config config;
  config.path_or_dataset_id = {path};
  config.column_mapping = {.context = std::nullopt, .question = "question", .answer = "answer"};
  return config;
}

TEST(ColumnMappedTest, MakesTheSamplesThatHuggingFaceTokenizersMake) {
  const Json golden =
      Json::parse_file(automodel::test::source_file("tests/datasets/data/column_mapped.json"));
  for (const Json& expected : golden.at("cases").as_array()) {
    SCOPED_TRACE(expected.at("name").as_string());
    const test::ReplayingEncoder encoder(expected.at("encoder"));
    Config config = config_for(automodel::test::source_file("tests/datasets/data/rows.jsonl"));
    config.answer_only_loss_mask = expected.at("answer_only").as_bool();
    if (!expected.at("seq_length").is_null())
      config.seq_length = expected.at("seq_length").as_int();
    if (expected.at("pads").as_bool()) config.padding = Padding::kMaxLength;
    if (expected.at("cuts").as_bool()) config.truncation = Truncation::kToLength;
    const ColumnMappedTextInstructionDataset dataset(config, encoder);
    ASSERT_EQ(dataset.size(), static_cast<int64_t>(expected.at("samples").size()));
    for (int64_t i = 0; i < dataset.size(); ++i) {
      const Sample sample = dataset.at(i);
      const Json& golden_sample = expected.at("samples").as_array()[static_cast<size_t>(i)];
      EXPECT_EQ(sample.input_ids, test::integers(golden_sample.at("input_ids"))) << "row " << i;
      EXPECT_EQ(sample.labels, test::integers(golden_sample.at("labels"))) << "row " << i;
      EXPECT_EQ(sample.row, test::integers(expected.at("rows"))[static_cast<size_t>(i)]);
    }
  }
}

TEST(ColumnMappedTest, JoinsContextAndQuestionWithSpaces) {
  const TemporaryDirectory directory;
  Config config =
      config_for(directory.write("x.jsonl", "{\"c\": \"AB\", \"q\": \"C\", \"a\": \"DE\"}\n"));
  config.column_mapping = {.context = "c", .question = "q", .answer = "a"};
  const test::ByteEncoder encoder;
  const Sample sample = ColumnMappedTextInstructionDataset(config, encoder).at(0);
  EXPECT_THAT(sample.input_ids, ElementsAre('A', 'B', ' ', 'C', ' ', 'D'));
  EXPECT_THAT(sample.labels, ElementsAre(-100, -100, -100, -100, 'D', 'E'));
  EXPECT_EQ(sample.num_attended, 6);
}

TEST(ColumnMappedTest, AnAnswerWhoseFirstTokenTakesInThePromptsSpaceIsToldApart) {
  const TemporaryDirectory directory;
  const Config config = config_for(
      directory.write("x.jsonl", "{\"question\": \"How many?\", \"answer\": \"seven\"}\n"));
  const test::ByteEncoder bytes;
  EXPECT_FALSE(ColumnMappedTextInstructionDataset(config, bytes).at(0).has_merged_border);
  const TokenizerEncoder merging(
      tokenizers::Tokenizer::load(automodel::test::source_file("configs/quickstart_tokenizer")));
  const Sample sample = ColumnMappedTextInstructionDataset(config, merging).at(0);
  EXPECT_TRUE(sample.has_merged_border);
}

TEST(ColumnMappedTest, AnAddedEndIsLearnedAlsoWhereASampleIsCut) {
  const TemporaryDirectory directory;
  Config config = config_for(directory.write(
      "x.jsonl", "{\"question\": \"How many?\", \"answer\": \"There are seven of them.\"}\n"));
  const std::string folder = automodel::test::source_file("configs/quickstart_tokenizer");
  const auto plain = load_text_encoder(folder);
  const auto ending = load_text_encoder(folder, {.adds_eos = true});
  const int64_t eos = plain->eos_token_id().value();
  const Sample without = ColumnMappedTextInstructionDataset(config, *plain).at(0);
  const Sample with = ColumnMappedTextInstructionDataset(config, *ending).at(0);
  std::vector<int64_t> labels = without.labels;
  labels.push_back(eos);
  EXPECT_EQ(with.labels, labels);
  EXPECT_EQ(with.num_attended, without.num_attended + 1);
  config.seq_length = 8;
  config.truncation = Truncation::kToLength;
  const Sample cut = ColumnMappedTextInstructionDataset(config, *ending).at(0);
  EXPECT_EQ(cut.labels.size(), 7u);
  EXPECT_EQ(cut.labels.back(), eos);
  EXPECT_GT(cut.num_cut, 0);
}

TEST(TokenizerEncoderTest, TokensAreAddedWhereTextsLackThem) {
  const auto encoder =
      load_text_encoder(automodel::test::source_file("configs/quickstart_tokenizer"),
                        {.adds_bos = true, .adds_eos = true});
  const int64_t bos = encoder->bos_token_id().value();
  const int64_t eos = encoder->eos_token_id().value();
  const std::vector<int64_t> plain = encoder->encode("seven", false);
  const std::vector<int64_t> ids = encoder->encode("seven", true);
  ASSERT_EQ(ids.size(), plain.size() + 2);
  EXPECT_EQ(ids.front(), bos);
  EXPECT_EQ(ids.back(), eos);
  EXPECT_TRUE(encoder->add_bos_token());
  const std::string written = encoder->token_text(eos);
  EXPECT_EQ(encoder->encode(written + "seven" + written, true), ids);
  EXPECT_TRUE(encoder->encode("", true).empty());
}

/// transformers 5 takes a tokenizer.json as it is, whatever stands beside it.
TEST(TokenizerEncoderTest, TheTokenizersConfigurationAddsNoTokens) {
  const TemporaryDirectory directory;
  const std::string folder = automodel::test::source_file("configs/quickstart_tokenizer");
  directory.write("tokenizer.json", read_file(path_join(folder, "tokenizer.json")));
  Json config = Json::parse_file(path_join(folder, "tokenizer_config.json"));
  config["add_bos_token"] = Json(true);
  config["add_eos_token"] = Json(true);
  directory.write("tokenizer_config.json", config.dump());
  const auto encoder = load_text_encoder(directory.path());
  EXPECT_EQ(encoder->encode("seven", true), load_text_encoder(folder)->encode("seven", true));
  EXPECT_FALSE(encoder->add_bos_token());
}

TEST(TokenizerEncoderTest, TellsWhereEachTokenEndsInTheText) {
  const auto encoder =
      load_text_encoder(automodel::test::source_file("configs/quickstart_tokenizer"));
  const Json lines =
      Json::parse_file(automodel::test::source_file("tests/tokenizers/data/lines.json"));
  for (const Json& line : lines.as_array()) {
    const std::string& text = line.as_string();
    const std::vector<int64_t> ids = encoder->encode(text, false);
    const auto ends = encoder->token_ends(text, ids);
    ASSERT_TRUE(ends) << text;
    ASSERT_EQ(ends->size(), ids.size());
    for (size_t i = 0, begin = 0; i < ids.size(); begin = (*ends)[i++]) {
      const std::string_view bytes = std::string_view(text).substr(begin, (*ends)[i] - begin);
      std::string token(2 * bytes.size(), ' ');
      token.resize(
          static_cast<size_t>(tokenizers::write_byte_level(token.data(), bytes) - token.data()));
      // An added token stands for itself.
      if (bytes == encoder->token_text(ids[i])) continue;
      EXPECT_EQ(token, encoder->token_text(ids[i]));
    }
  }
}

TEST(TokenizerEncoderTest, TokensOfAnotherTextLieNowhereInThisOne) {
  const auto encoder =
      load_text_encoder(automodel::test::source_file("configs/quickstart_tokenizer"));
  const std::string text = "The rain in Spain stays mainly in the plain.";
  const std::vector<int64_t> ids = encoder->encode(text, false);
  ASSERT_TRUE(encoder->token_ends(text, ids));
  for (size_t i = 0; i < ids.size(); ++i) {
    std::vector<int64_t> others = ids;
    others[i] = encoder->encode("?", false).front();
    EXPECT_FALSE(encoder->token_ends(text, others)) << i;
  }
  EXPECT_FALSE(encoder->token_ends(text.substr(1), ids));
  EXPECT_FALSE(encoder->token_ends(text + "?", ids));
}

TEST(TokenizerEncoderTest, ATokenThatThereIsNotCannotBeAdded) {
  const TemporaryDirectory directory;
  directory.write(
      "tokenizer.json",
      read_file(automodel::test::source_file("configs/quickstart_tokenizer/tokenizer.json")));
  directory.write("tokenizer_config.json", "{}");
  EXPECT_EQ(error_of<InputError>([&] { load_text_encoder(directory.path(), {.adds_eos = true}); }),
            cat("add_eos_token: the tokenizer of ", directory.path(),
                " has no eos_token; its tokenizer_config.json names one"));
  EXPECT_NO_THROW(load_text_encoder(directory.path()));
}

TEST(ColumnMappedTest, UnshiftedSamplesKeepEveryTokenAndSayWhichCount) {
  const TemporaryDirectory directory;
  Config config =
      config_for(directory.write("x.jsonl", "{\"question\": \"AB\", \"answer\": \"DE\"}\n"));
  config.unshifted = true;
  const test::ByteEncoder encoder;
  const Sample sample = ColumnMappedTextInstructionDataset(config, encoder).at(0);
  EXPECT_THAT(sample.input_ids, ElementsAre('A', 'B', ' ', 'D', 'E'));
  EXPECT_THAT(sample.labels, ElementsAre(-100, -100, -100, 'D', 'E'));
  EXPECT_EQ(sample.num_attended, 5);
}

TEST(ColumnMappedTest, UnshiftedSamplesArePaddedBehindWhatIsAttendedTo) {
  const TemporaryDirectory directory;
  Config config =
      config_for(directory.write("x.jsonl", "{\"question\": \"AB\", \"answer\": \"DE\"}\n"));
  config.unshifted = true;
  config.seq_length = 7;
  config.padding = Padding::kMaxLength;
  const test::ByteEncoder encoder;
  const Sample sample = ColumnMappedTextInstructionDataset(config, encoder).at(0);
  EXPECT_EQ(sample.input_ids.size(), 7u);
  EXPECT_EQ(sample.num_attended, 5 + (encoder.eos_token_id() == sample.pad_id ? 1 : 0));
  EXPECT_EQ(sample.labels[6], -100);
}

TEST(ColumnMappedTest, LeavesOutAPartThatIsNullOrAbsentInARow) {
  const TemporaryDirectory directory;
  Config config = config_for(directory.write(
      "x.jsonl", "{\"c\": null, \"q\": \"C\", \"a\": \"D\"}\n{\"q\": \"E\", \"a\": \"F\"}\n"));
  config.column_mapping = {.context = "c", .question = "q", .answer = "a"};
  const test::ByteEncoder encoder;
  const ColumnMappedTextInstructionDataset dataset(config, encoder);
  EXPECT_THAT(dataset.at(0).input_ids, ElementsAre('C', ' '));
  EXPECT_THAT(dataset.at(1).input_ids, ElementsAre('E', ' '));
}

TEST(ColumnMappedTest, PadsWithEosWhenThePadIdIsZeroOrMissing) {
  const TemporaryDirectory directory;
  Config config =
      config_for(directory.write("x.jsonl", "{\"question\": \"A\", \"answer\": \"B\"}\n"));
  config.seq_length = 5;
  config.padding = Padding::kMaxLength;
  test::ByteEncoder encoder;
  for (const std::optional<int64_t> pad : {std::optional<int64_t>(), std::optional<int64_t>(0)}) {
    encoder.pad = pad;
    const Sample sample = ColumnMappedTextInstructionDataset(config, encoder).at(0);
    EXPECT_THAT(sample.input_ids, ElementsAre('A', ' ', 'B', 256, 256));
    EXPECT_THAT(sample.labels, ElementsAre(-100, 'B', -100, -100, -100));
    EXPECT_EQ(sample.num_attended, 3);  // the last real token counts as content when pad is eos
    EXPECT_EQ(sample.pad_id, 256);
  }
  encoder.pad = 300;
  const Sample sample = ColumnMappedTextInstructionDataset(config, encoder).at(0);
  EXPECT_THAT(sample.input_ids, ElementsAre('A', ' ', 'B', 300, 300));
  EXPECT_EQ(sample.num_attended, 2);
}

/// Counts the texts that it is given.
struct CountingEncoder final : test::ByteEncoder {
  std::vector<int64_t> encode(std::string_view text, bool add_special_tokens) const override {
    ++num_encoded;
    return ByteEncoder::encode(text, add_special_tokens);
  }
  mutable int64_t num_encoded = 0;
};

TEST(ColumnMappedTest, ALongRunWithoutLabelsIsLookedAtAFewTimesOnly) {
  const TemporaryDirectory directory;
  std::string rows = "{\"question\": \"A\", \"answer\": \"B\"}\n";
  constexpr int64_t kRows = 2000;
  for (int64_t i = 1; i < kRows; ++i) rows += "{\"question\": \"C\", \"answer\": \"\"}\n";
  const CountingEncoder encoder;
  const ColumnMappedTextInstructionDataset dataset(config_for(directory.write("x.jsonl", rows)),
                                                   encoder);
  for (const int64_t first : {kRows / 2, int64_t{1}, kRows / 4}) {
    for (int64_t i = first; i < kRows; ++i) EXPECT_EQ(dataset.at(i).row, 0);
  }
  EXPECT_LT(encoder.num_encoded, 30 * kRows);  // and not kRows / 2 for each of them
}

TEST(ColumnMappedTest, TakesTheNextRowForOneWithoutALabel) {
  const TemporaryDirectory directory;
  const Config config = config_for(directory.write("x.jsonl",
                                                   "{\"question\": \"A\", \"answer\": \"B\"}\n"
                                                   "{\"question\": \"C\", \"answer\": \"\"}\n"));
  const test::ByteEncoder encoder;
  const Sample sample = ColumnMappedTextInstructionDataset(config, encoder).at(1);
  EXPECT_EQ(sample.row, 0);
  EXPECT_THAT(sample.input_ids, ElementsAre('A', ' '));
}

TEST(ColumnMappedTest, RefusesDataWithoutAnyLabel) {
  const TemporaryDirectory directory;
  Config config =
      config_for(directory.write("x.jsonl", "{\"question\": \"ABCDEF\", \"answer\": \"B\"}\n"));
  config.seq_length = 4;
  config.truncation = Truncation::kToLength;
  const test::ByteEncoder encoder;
  const ColumnMappedTextInstructionDataset dataset(config, encoder);
  EXPECT_EQ(
      error_of<UserError>([&] { dataset.at(0); }),
      "no row of " + config.path_or_dataset_id[0] +
          " has a token that counts in the loss: answers are empty, or of a single "
          "token that the prompt's last space is a part of, or seq_length 4 cuts all of them off");
}

TEST(ColumnMappedTest, NamesTheColumnsThereAreWhenOneIsMissing) {
  const TemporaryDirectory directory;
  const std::string path = directory.write("x.jsonl", "{\"question\": \"A\", \"reply\": \"B\"}\n");
  const Config config = config_for(path);
  const test::ByteEncoder encoder;
  EXPECT_EQ(error_of<UserError>([&] { check(config); }),
            path + ": no column 'answer'; columns: question, reply");
  EXPECT_EQ(error_of<UserError>([&] { ColumnMappedTextInstructionDataset(config, encoder); }),
            path + ":1: no column 'answer'; columns: question, reply");
}

TEST(ColumnMappedTest, TheFirstRowMayLackAPartThatLaterOnesHave) {
  const TemporaryDirectory directory;
  const std::string path =
      directory.write("x.jsonl",
                      "{\"question\": \"A\", \"answer\": \"B\"}\n"
                      "{\"question\": \"A\", \"answer\": \"B\", \"about\": \"C\"}\n");
  Config config = config_for(path);
  config.column_mapping.context = "about";
  const test::ByteEncoder encoder;
  check(config);
  const ColumnMappedTextInstructionDataset dataset(config, encoder);
  EXPECT_LT(dataset.at(0).input_ids.size(), dataset.at(1).input_ids.size());
  config.column_mapping.context = "abuot";
  EXPECT_EQ(error_of<UserError>([&] { check(config); }),
            path + ": no column 'abuot'; columns: question, answer");
  EXPECT_EQ(error_of<UserError>([&] { ColumnMappedTextInstructionDataset(config, encoder); }),
            path + ":1: no column 'abuot'; columns: question, answer");
}

TEST(ColumnMappedTest, RefusesAnAnswerThatIsMissingNullOrNoText) {
  const TemporaryDirectory directory;
  const std::string path = directory.write("x.jsonl",
                                           "{\"question\": \"A\", \"answer\": \"B\"}\n"
                                           "{\"question\": \"A\"}\n"
                                           "{\"question\": \"A\", \"answer\": null}\n"
                                           "{\"question\": \"A\", \"answer\": 4}\n"
                                           "{\"question\": \"\", \"answer\": \"B\"}\n"
                                           "{\"answer\": \"B\"}\n");
  const test::ByteEncoder encoder;
  const ColumnMappedTextInstructionDataset dataset(config_for(path), encoder);
  EXPECT_EQ(error_of<UserError>([&] { dataset.at(1); }),
            path + ":2: no column 'answer'; columns: question");
  EXPECT_EQ(error_of<UserError>([&] { dataset.at(2); }), path + ":3: column 'answer' is null");
  EXPECT_EQ(error_of<UserError>([&] { dataset.at(3); }),
            path + ":4: column 'answer' must hold text, it holds an integer");
  EXPECT_EQ(error_of<UserError>([&] { dataset.at(4); }),
            path + ":5: question and context are empty");
  EXPECT_EQ(error_of<UserError>([&] { dataset.at(5); }),
            path + ":6: no column 'question'; columns: answer");
  // A chat template writes an empty message too.
  test::ByteEncoder chat;
  chat.has_template = true;
  chat.template_text = "{% for m in messages %}{{ m.role[0] }}({{ m.content }}){% endfor %}";
  Config by_template = config_for(path);
  by_template.use_hf_chat_template = true;
  EXPECT_TRUE(ColumnMappedTextInstructionDataset(by_template, chat).at(4).has_label());
}

TEST(ColumnMappedTest, RefusesIncompleteOptions) {
  const TemporaryDirectory directory;
  Config config =
      config_for(directory.write("x.jsonl", "{\"question\": \"A\", \"answer\": \"B\"}\n"));
  config.column_mapping.answer.reset();
  EXPECT_EQ(error_of<UserError>([&] { check(config); }),
            "column_mapping must name the answer column");
  config.column_mapping = {.context = std::nullopt, .question = std::nullopt, .answer = "answer"};
  EXPECT_EQ(error_of<UserError>([&] { check(config); }),
            "column_mapping must name a question or a context column beside the answer");
  config.column_mapping.question = "question";
  config.padding = Padding::kMaxLength;
  EXPECT_EQ(error_of<UserError>([&] { check(config); }),
            "padding: max_length needs seq_length: the length to pad to");
}

TEST(ColumnMappedTest, WhatStandsInCsvIsText) {
  const TemporaryDirectory directory;
  const test::ByteEncoder encoder;
  const auto text_of = [&](const Config& config, int64_t row) {
    const Sample sample = ColumnMappedTextInstructionDataset(config, encoder).at(row);
    return std::string(sample.input_ids.begin(), sample.input_ids.end());
  };
  const Config config =
      config_for(directory.write("x.csv", "question,answer\nA,0072\nNA,1.50\nB,15\n"));
  EXPECT_EQ(text_of(config, 0), "A 007");
  EXPECT_EQ(text_of(config, 1), "NA 1.5");
  EXPECT_EQ(text_of(config, 2), "B 1");
}

TEST(ColumnMappedTest, SaysWhatIsOddAboutTheFirstRows) {
  const TemporaryDirectory directory;
  test::ByteEncoder encoder;
  encoder.has_template = true;
  encoder.template_text = "{% for m in messages %}{{ m.role[0] }}({{ m.content }}){% endfor %}";
  encoder.eos = ')';
  const auto findings_of = [&](const char* lines, int64_t seq_length = 100) {
    Config config = config_for(directory.write("x.jsonl", lines));
    config.use_hf_chat_template = true;
    config.seq_length = seq_length;
    config.truncation = Truncation::kToLength;
    return ColumnMappedTextInstructionDataset(config, encoder).findings();
  };
  EXPECT_THAT(findings_of("{\"question\": \"A\", \"answer\": \"B\"}\n"), testing::IsEmpty());
  EXPECT_THAT(findings_of("{\"question\": \"A\", \"answer\": \"B\"}\n"
                          "{\"question\": null, \"answer\": \"B\"}\n"
                          "{\"question\": \"\", \"answer\": \"B\"}\n"),
              ElementsAre(testing::EndsWith(
                  "x.jsonl:2: column 'question' is empty here, and in 2 of the first 3 rows; "
                  "answers to nothing are trained on")));
  EXPECT_THAT(error_of<NoLabelsError>(
                  [&] { findings_of("{\"question\": \"A\", \"answer\": \"B\"}\n", 4); }),
              testing::HasSubstr("seq_length 4 cuts all of them off"));
}

TEST(ColumnMappedTest, SaysThatAnswersDoNotEnd) {
  const TemporaryDirectory directory;
  test::ByteEncoder encoder;
  encoder.template_text = "{% for m in messages %}{{ m.role[0] }}({{ m.content }}){% endfor %}";
  Config config = config_for(directory.write("x.jsonl",
                                             "{\"question\": \"A\", \"answer\": \"Bc\"}\n"
                                             "{\"question\": \"A\", \"answer\": \"Be\"}\n"));
  const auto findings = [&] {
    return ColumnMappedTextInstructionDataset(config, encoder).findings();
  };
  encoder.eos = 'e';
  EXPECT_THAT(findings(), testing::IsEmpty());
  encoder.eos = '!';
  EXPECT_THAT(findings(),
              ElementsAre(testing::EndsWith(
                  "x.jsonl:1: none of the first 2 answers ends with a special token, so "
                  "the model will not learn to end its answers; tokenizer: "
                  "{add_eos_token: true} of the dataset writes ! behind them")));
  encoder.has_template = true;
  config.use_hf_chat_template = true;
  EXPECT_THAT(findings(), ElementsAre(testing::HasSubstr("the chat template writes none behind")));
  encoder.eos = ')';
  EXPECT_THAT(findings(), testing::IsEmpty());
}

TEST(ColumnMappedTest, WritesAChatTemplateWhenAskedAndThereIsOne) {
  const TemporaryDirectory directory;
  Config config =
      config_for(directory.write("x.jsonl", "{\"question\": \"A\", \"answer\": \"B\"}\n"));
  test::ByteEncoder encoder;
  encoder.has_template = true;
  encoder.template_text = "{% for m in messages %}{{ m.role[0] }}({{ m.content }}){% endfor %}";
  const auto inputs_of = [&] {
    const Sample sample = ColumnMappedTextInstructionDataset(config, encoder).at(0);
    return std::string(sample.input_ids.begin(), sample.input_ids.end());
  };
  EXPECT_EQ(inputs_of(), "A ");
  config.use_hf_chat_template = true;
  EXPECT_EQ(inputs_of(), "s()u(A)a(B");
}

}  // namespace
}  // namespace automodel::datasets

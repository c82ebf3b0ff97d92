#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/text.h"
#include "datasets/encoders.h"
#include "datasets/loading/packing.h"
#include "datasets/pretraining/mock_classified.h"
#include "datasets/texts/classified_texts.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

using automodel::test::TemporaryDirectory;
using test::ByteEncoder;
using testing::ElementsAre;
using testing::HasSubstr;

const ClassifierFacts kTwoClasses{{"no", "yes"}};

ClassifiedTextDataset classified_rows(const std::string& path, const TextEncoder& encoder,
                                      const ClassifierFacts& model = kTwoClasses,
                                      std::optional<int64_t> max_length = std::nullopt) {
  SequenceClassificationDatasetConfig config;
  config.path_or_dataset_id = {path};
  config.max_length = max_length;
  return {config, encoder, model};
}

std::string error_of_row(const std::string& row) {
  const TemporaryDirectory folder;
  const std::string path = folder.write("rows.jsonl", row + "\n");
  try {
    const ByteEncoder encoder;
    const auto dataset = classified_rows(path, encoder);
  } catch (const InputError& error) {
    return replace_all(error.what(), path, "rows.jsonl");
  }
  return "";
}

struct UntypedEncoder final : ByteEncoder {
  bool gives_types() const override { return false; }
};

/// A tokenizer whose model_input_names lack types of tokens.
TEST(ClassifiedTextsTest, TypesAreGivenWhereTheTokenizerGivesThem) {
  const TemporaryDirectory folder;
  SequenceClassificationDatasetConfig config;
  config.path_or_dataset_id = {
      folder.write("rows.jsonl", "{\"text\": \"ab\", \"d\": \"c\", \"label\": 1}\n")};
  config.text_pair_column = "d";
  ClassifierFacts model = kTwoClasses;
  model.is_encoder = true;
  model.num_token_types = 2;
  const UntypedEncoder untyped;
  EXPECT_THAT(ClassifiedTextDataset(config, untyped, model).at(0).token_types, ElementsAre());
  const ByteEncoder typed;
  EXPECT_THAT(ClassifiedTextDataset(config, typed, model).at(0).token_types, ElementsAre(0, 0, 1));
}

/// ByteEncoder gives the second text of a pair type 1.
TEST(ClassifiedTextsTest, AnEncodersPairsHaveTypesAlsoInPacks) {
  const TemporaryDirectory folder;
  const ByteEncoder encoder;
  SequenceClassificationDatasetConfig config;
  config.path_or_dataset_id = {folder.write("rows.jsonl",
                                            "{\"text\": \"ab\", \"d\": \"c\", \"label\": 1}\n"
                                            "{\"text\": \"e\", \"d\": \"fg\", \"label\": 0}\n")};
  config.text_pair_column = "d";
  const auto dataset = [&](int64_t num_types) {
    ClassifierFacts model = kTwoClasses;
    model.is_encoder = true;
    model.num_token_types = num_types;
    return std::make_unique<ClassifiedTextDataset>(config, encoder, model);
  };
  EXPECT_THAT(dataset(2)->at(0).token_types, ElementsAre(0, 0, 1));
  EXPECT_THAT(dataset(2)->at(0).labels, ElementsAre(1, kIgnoreIndex, kIgnoreIndex));
  EXPECT_THAT(dataset(1)->at(0).token_types, ElementsAre());
  const PackedDataset packs(dataset(2), {.pack_size = 8, .num_threads = 1}, nullptr);
  EXPECT_THAT(packs.at(0).token_types, ElementsAre(0, 0, 1, 0, 1, 1));
}

TEST(ClassifiedTextsTest, ALastTokenHasTheClassAndNoOtherOne) {
  const TemporaryDirectory folder;
  const ByteEncoder encoder;
  const auto dataset = classified_rows(folder.write("rows.jsonl",
                                                    "{\"text\": \"abc\", \"label\": 1}\n"
                                                    "{\"text\": \"d\", \"label\": \"yes\"}\n"
                                                    "{\"text\": \"ef\", \"label\": false}\n"
                                                    "{\"text\": \"g\", \"label\": 1.0}\n"),
                                       encoder);
  ASSERT_EQ(dataset.size(), 4);
  const Sample first = dataset.at(0);
  EXPECT_THAT(first.input_ids, ElementsAre('a', 'b', 'c'));
  EXPECT_THAT(first.labels, ElementsAre(kIgnoreIndex, kIgnoreIndex, 1));
  EXPECT_EQ(first.num_attended, 3);
  EXPECT_EQ(first.num_cut, 0);
  EXPECT_THAT(dataset.at(1).labels, ElementsAre(1));
  EXPECT_THAT(dataset.at(2).labels, ElementsAre(kIgnoreIndex, 0));
  EXPECT_THAT(dataset.at(3).labels, ElementsAre(1));
}

TEST(ClassTableTest, ValuesMeanNamesWhereClassesAreCalledSo) {
  const ClassTable words({"no", "yes"});
  EXPECT_EQ(words.class_of(Json("yes"), ""), 1);
  EXPECT_EQ(words.class_of(Json(int64_t{1}), ""), 1);
  EXPECT_EQ(words.class_of(Json(true), ""), 1);
  const ClassTable stars({"1", "2", "3"});
  EXPECT_EQ(stars.class_of(Json(int64_t{1}), ""), 0);
  EXPECT_EQ(stars.class_of(Json("3"), ""), 2);
  EXPECT_THROW(stars.class_of(Json(int64_t{0}), ""), InputError);
  const ClassTable truths({"True", "False"});
  EXPECT_EQ(truths.class_of(Json(true), ""), 0);
  EXPECT_EQ(truths.class_of(Json(false), ""), 1);
}

TEST(ClassifiedTextsTest, AClassIsThatOfTheLastTokenWhichIsNoPadding) {
  ByteEncoder encoder;
  encoder.pad = '.';
  const TemporaryDirectory folder;
  const std::string path = folder.write("rows.jsonl",
                                        "{\"text\": \"a.b..\", \"label\": 1}\n"
                                        "{\"text\": \"...\", \"label\": 1}\n");
  const auto dataset = classified_rows(path, encoder);
  constexpr int64_t no = kIgnoreIndex;
  EXPECT_THAT(dataset.at(0).labels, ElementsAre(no, no, 1, no, no));
  EXPECT_THAT(dataset.at(1).labels, ElementsAre(1, no, no));  // transformers' argmax of zeros
  EXPECT_EQ(dataset.at(0).pad_id, '.');
  // Without a pad token of the tokenizer's, config.json's, then the end of sequence.
  encoder.pad.reset();
  EXPECT_EQ(classifier_pad_id(encoder, 7), 7);
  EXPECT_EQ(classifier_pad_id(encoder, std::nullopt), encoder.eos);
}

TEST(ClassifiedTextsTest, ColumnsHaveAnyNames) {
  const ByteEncoder encoder;
  const TemporaryDirectory folder;
  SequenceClassificationDatasetConfig config;
  config.path_or_dataset_id = {folder.write(
      "rows.jsonl", "{\"text\": \"x\", \"q\": \"ab\", \"d\": \"c\", \"kind\": 1, \"label\": 0}\n")};
  config.text_column = "q";
  config.text_pair_column = "d";
  config.label_column = "kind";
  const Sample sample = ClassifiedTextDataset(config, encoder, kTwoClasses).at(0);
  EXPECT_THAT(sample.input_ids, ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(sample.labels.back(), 1);
  EXPECT_THAT(config.columns_read(), ElementsAre("q", "kind", "d"));
  config.text_pair_column = "e";
  EXPECT_THROW(check(config), InputError);
}

TEST(ClassifiedTextsTest, RowsSortedByClassAreShuffled) {
  const ByteEncoder encoder;
  const TemporaryDirectory folder;
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += cat("{\"text\": \"a\", \"label\": ", i / 20, "}\n");
  SequenceClassificationDatasetConfig config;
  config.path_or_dataset_id = {folder.write("rows.jsonl", rows)};
  config.split = "train[:20]";
  const auto num_of_second = [&] {
    const ClassifiedTextDataset dataset(config, encoder, kTwoClasses);
    int64_t count = 0;
    for (int64_t i = 0; i < dataset.size(); ++i) count += dataset.at(i).labels[0];
    return count;
  };
  EXPECT_EQ(num_of_second(), 0);
  config.shuffle_seed = 3;
  EXPECT_GT(num_of_second(), 4);
  EXPECT_LT(num_of_second(), 16);
}

TEST(ClassifiedTextsTest, TheHubsDataSetHasTheConfigurationMrpc) {
  GlueMrpcConfig config;
  EXPECT_EQ(config.source().paths, std::vector<std::string>{"glue"});
  EXPECT_EQ(config.source().name, "mrpc");
  const TemporaryDirectory folder;
  config.path_or_dataset_id = folder.path();
  EXPECT_EQ(config.source().name, std::nullopt);
  config.split = "validation";
  config.num_samples_limit = 3;
  EXPECT_EQ(config.source().split, "validation");
  EXPECT_EQ(config.source().limit, 3);
}

TEST(ClassifiedTextsTest, PairsAreCutToTheLength) {
  const ByteEncoder encoder;
  const TemporaryDirectory folder;
  GlueMrpcConfig config;
  config.path_or_dataset_id = folder.write(
      "rows.jsonl", "{\"sentence1\": \"abcd\", \"sentence2\": \"ef\", \"label\": 0, \"idx\": 4}\n");
  config.max_length = 5;
  const ClassifiedTextDataset cut(config, encoder, kTwoClasses);
  EXPECT_THAT(cut.at(0).input_ids, ElementsAre('a', 'b', 'c', 'd', 'e'));
  EXPECT_EQ(cut.at(0).num_cut, 1);
  config.max_length = 6;
  EXPECT_EQ(ClassifiedTextDataset(config, encoder, kTwoClasses).at(0).num_cut, 0);
}

/// An encoder whose tokenizer names a limit of its own.
struct LimitedEncoder final : ByteEncoder {
  std::optional<double> limit;
  std::optional<double> model_max_length() const override { return limit; }
};

TEST(ClassifiedTextsTest, WithoutALengthTheTokenizersOwnCounts) {
  GlueMrpcConfig config;
  config.max_length.reset();
  LimitedEncoder encoder;
  EXPECT_EQ(config.most_tokens(encoder), 1024);
  encoder.limit = 512;
  EXPECT_EQ(config.most_tokens(encoder), 512);
  encoder.limit = 8193;
  EXPECT_EQ(config.most_tokens(encoder), 1024);
  encoder.limit = 1e30;
  EXPECT_EQ(config.most_tokens(encoder), 1024);
}

TEST(ClassifiedTextsTest, WrongRowsAreNamed) {
  EXPECT_EQ(error_of_row("{\"text\": \"a\", \"label\": 2}"),
            "rows.jsonl:1: column 'label' is 2; the model's classes are 0 to 1 (no, yes): "
            "model.num_labels says how many");
  EXPECT_EQ(
      error_of_row("{\"text\": \"a\", \"label\": \"yess\"}"),
      "rows.jsonl:1: column 'label' is 'yess', which is no class of the model's: 0 to 1 (no, yes); "
      "did you mean 'yes'?; model.id2label names them");
  EXPECT_EQ(error_of_row("{\"text\": \"a\", \"label\": -1}"),
            "rows.jsonl:1: column 'label' is -1: this split hides its classes, as test sets of "
            "benchmarks do");
  EXPECT_EQ(error_of_row("{\"text\": \"a\", \"label\": 0.5}"),
            "rows.jsonl:1: column 'label' is 0.5: a class is a whole number from 0, or its name");
  EXPECT_THAT(error_of_row("{\"text\": \"a\", \"label\": null}"), HasSubstr("'label' is null"));
  EXPECT_THAT(error_of_row("{\"text\": null, \"label\": 0}"), HasSubstr("'text' is null"));
  EXPECT_THAT(error_of_row("{\"text\": \"\", \"label\": 0}"),
              HasSubstr("'text' is a text without any token"));
  EXPECT_THAT(error_of_row("{\"words\": \"a\", \"label\": 0}"), HasSubstr("no column 'text'"));
}

TEST(MockClassifiedTest, DrawsAsPythonDoes) {
  const MockSequenceClassificationDatasetConfig config{
      .num_samples = 3, .num_labels = 3, .vocab_size = 256, .max_seq_len = 7, .seed = 11};
  const MockSequenceClassificationDataset dataset(config, {{"a", "b", "c"}});
  ASSERT_EQ(dataset.size(), 3);
  EXPECT_THAT(dataset.at(0).input_ids, ElementsAre(223, 145, 221, 238, 201, 121, 117));
  EXPECT_EQ(dataset.at(0).labels.back(), 2);
  EXPECT_THAT(dataset.at(1).input_ids, ElementsAre(49, 207, 133, 123, 163));
  EXPECT_EQ(dataset.at(1).labels.back(), 2);
  EXPECT_THAT(dataset.at(2).input_ids, ElementsAre(26, 116, 79, 38, 25));
  EXPECT_EQ(dataset.at(2).labels.back(), 2);
  EXPECT_THROW(MockSequenceClassificationDataset(config, {{"a", "b"}}), InputError);
}

}  // namespace
}  // namespace automodel::datasets

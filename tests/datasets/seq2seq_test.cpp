#include "datasets/texts/seq2seq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/text.h"
#include "datasets/encoders.h"
#include "datasets/loading/collate.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;
using automodel::test::TemporaryDirectory;
using test::ByteEncoder;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kRows =
    "{\"q\": \"a\", \"c\": \"b\", \"n\": 7, \"answers\": {\"text\": [\" xy \", \"z\"]}}\n"
    "{\"q\": \"dd\", \"c\": \"\", \"n\": 8, \"answers\": {\"text\": []}}\n";

ByteEncoder ending_encoder() {
  ByteEncoder encoder;
  encoder.pad = 0;
  encoder.adds_special_tokens = true;  // 256 at the end, as T5's tokenizer does
  return encoder;
}

Seq2SeqConfig config_of(const std::string& path) {
  Seq2SeqConfig config;
  config.dataset_name = path;
  config.source_template = "{{{q}}} {c}{n}";
  return config;
}

std::vector<int64_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::vector<int64_t> ending(const std::string& text) {
  std::vector<int64_t> ids = bytes(text);
  ids.push_back(256);
  return ids;
}

TEST(Seq2SeqTest, TargetsBeginWithThePadTokenAndAreLabelsThemselves) {
  const TemporaryDirectory folder;
  const ByteEncoder encoder = ending_encoder();
  Seq2SeqConfig config = config_of(folder.write("rows.jsonl", kRows));
  const Sample sample = Seq2SeqDataset(config, encoder).at(0);
  EXPECT_EQ(sample.source_ids, ending("{a} b7"));
  EXPECT_EQ(sample.labels, ending("xy"));
  EXPECT_THAT(sample.input_ids, ElementsAre(0, 'x', 'y'));
  EXPECT_EQ(sample.num_attended, 3);
  EXPECT_EQ(sample.pad_id, 0);
  EXPECT_EQ(sample.num_cut, 0);
  config.decoder_start_token_id = 5;
  EXPECT_THAT(Seq2SeqDataset(config, encoder).at(0).input_ids, ElementsAre(5, 'x', 'y'));
  config.source_template.reset();
  config.source_key = "c";
  config.target_key = "q";
  EXPECT_EQ(Seq2SeqDataset(config, encoder).at(0).source_ids, ending("b"));
  EXPECT_EQ(Seq2SeqDataset(config, encoder).at(1).labels, ending("dd"));
}

TEST(Seq2SeqTest, ATargetWithoutTokensHasNoLabel) {
  const TemporaryDirectory folder;
  ByteEncoder encoder;  // without a pad token, which the end is then, and without special tokens
  const Seq2SeqDataset dataset(config_of(folder.write("rows.jsonl", kRows)), encoder);
  const Sample sample = dataset.at(1);
  EXPECT_EQ(sample.source_ids, bytes("{dd} 8"));
  EXPECT_THAT(sample.labels, ElementsAre(kIgnoreIndex));
  EXPECT_THAT(sample.input_ids, ElementsAre(256));
}

TEST(Seq2SeqTest, SourcesAndTargetsAreCutEach) {
  const TemporaryDirectory folder;
  const ByteEncoder encoder = ending_encoder();
  Seq2SeqConfig config = config_of(folder.write("rows.jsonl", kRows));
  config.seq_length = 2;
  const Sample cut = Seq2SeqDataset(config, encoder).at(0);
  EXPECT_EQ(cut.source_ids.size(), 2U);
  EXPECT_EQ(cut.labels.size(), 2U);
  EXPECT_EQ(cut.num_cut, 5 + 1);
  config.truncation = Truncation::kNone;
  EXPECT_EQ(Seq2SeqDataset(config, encoder).at(0).source_ids, ending("{a} b7"));
}

TEST(Seq2SeqTest, TheFirstRowsAreTakenUnlessTheSplitHasASlice) {
  const TemporaryDirectory folder;
  const ByteEncoder encoder = ending_encoder();
  Seq2SeqConfig config = config_of(folder.write("rows.jsonl", kRows));
  EXPECT_EQ(Seq2SeqDataset(config, encoder).size(), 2);
  config.limit_dataset_samples = 1;
  EXPECT_EQ(Seq2SeqDataset(config, encoder).size(), 1);
  config.split = "train[1:]";
  EXPECT_EQ(Seq2SeqDataset(config, encoder).at(0).source_ids, ending("{dd} 8"));
}

TEST(Seq2SeqTest, BatchesPadSourcesAndTargetsApart) {
  const TemporaryDirectory folder;
  const ByteEncoder encoder = ending_encoder();
  const Seq2SeqDataset dataset(config_of(folder.write("rows.jsonl", kRows)), encoder);
  std::vector<Sample> samples = {dataset.at(0), dataset.at(1)};
  tensor::Batch batch = default_collater(samples);
  EXPECT_THAT(batch.input_ids.sizes(), ElementsAre(2, 3));
  EXPECT_THAT(batch.source_ids.sizes(), ElementsAre(2, 7));
  EXPECT_FALSE(batch.source_padding.defined());  // both are of one length
  EXPECT_TRUE(batch.padding_mask.defined());
  EXPECT_EQ(batch.labels[1][1].item<int64_t>(), kIgnoreIndex);
  samples[0].source_ids.resize(4);
  batch = default_collater(samples, {.pad_seq_len_divisible = 4});
  EXPECT_THAT(batch.input_ids.sizes(), ElementsAre(2, 4));
  ASSERT_THAT(batch.source_ids.sizes(), ElementsAre(2, 8));
  EXPECT_EQ(batch.source_padding.sum().item<int64_t>(), 4 + 1);
  EXPECT_EQ(batch.source_ids[0][4].item<int64_t>(), 0);
  const tensor::Batch second = batch.sequences(1, 1);
  EXPECT_THAT(second.source_ids.sizes(), ElementsAre(1, 8));
  EXPECT_EQ(second.source_padding.sum().item<int64_t>(), 1);
  EXPECT_THAT(error_of<InputError>([&] { stack_collater(samples); }),
              HasSubstr("row 0 has a source of 4 tokens, row 1 of 7"));
}

TEST(Seq2SeqTest, WrongTemplatesAreNamed) {
  const auto error_of_template = [](const std::string& text) {
    return error_of<UserError>([&] { RowTemplate{text}; });
  };
  EXPECT_THAT(error_of_template("{q"), HasSubstr("a '{' without its '}'"));
  EXPECT_THAT(error_of_template("q}"), HasSubstr("a '}' without its '{'"));
  for (const char* text : {"{}", "{q!r}", "{q:>5}", "{q.x}", "{q[0]}"}) {
    EXPECT_THAT(error_of_template(text), HasSubstr("is not a column's name alone")) << text;
  }
  EXPECT_THAT(error_of_template("}}{{"), HasSubstr("it names no column"));
  EXPECT_EQ(RowTemplate("}}{q}{{").filled([](const std::string& name) { return name; }), "}q{");
}

TEST(Seq2SeqTest, WrongRowsAreNamed) {
  const auto error_of_row = [](const std::string& row) {
    const TemporaryDirectory folder;
    const std::string path = folder.write("rows.jsonl", row + "\n");
    const ByteEncoder encoder = ending_encoder();
    return replace_all(error_of<InputError>([&] { Seq2SeqDataset(config_of(path), encoder); }),
                       path, "rows");
  };
  EXPECT_THAT(error_of_row("{\"q\": 1.5, \"c\": \"\", \"n\": 1, \"answers\": \"a\"}"),
              HasSubstr("rows:1: column 'q' must be text or a whole number, it is a number"));
  EXPECT_THAT(error_of_row("{\"q\": \"\", \"c\": \"\", \"n\": 1}"),
              HasSubstr("rows:1: no column 'answers'"));
  EXPECT_THAT(error_of_row("{\"q\": \"\", \"c\": \"\", \"n\": 1, \"answers\": null}"),
              HasSubstr("column 'answers' must be text or a whole number, it is null"));
  EXPECT_THAT(error_of_row("{\"q\": \"\", \"c\": \"\", \"n\": 1, \"answers\": {\"text\": [1]}}"),
              HasSubstr("column 'answers': 'text' must be a list of texts"));
}

}  // namespace
}  // namespace automodel::datasets

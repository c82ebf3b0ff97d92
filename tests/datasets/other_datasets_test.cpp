#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "datasets/encoders.h"
#include "datasets/pretraining/mock_iterable.h"
#include "datasets/texts/hellaswag.h"
#include "datasets/texts/squad.h"
#include "datasets/texts/text_file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;
using automodel::test::TemporaryDirectory;
using testing::ElementsAre;

std::string text_of(const std::vector<int64_t>& ids) {
  std::string text;
  for (const int64_t id : ids) text += id < 0 ? '_' : id > 255 ? '$' : static_cast<char>(id);
  return text;
}

std::vector<int64_t> flat(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

TEST(SquadTest, WritesContextQuestionAndTheFirstAnswer) {
  const TemporaryDirectory directory;
  const SquadConfig config{
      .dataset_name = directory.write(
          "squad.jsonl",
          R"({"context": "C", "question": "Q", "answers": {"text": [" yes ", "no"]}})"
          "\n"
          R"({"context": "C", "question": "Q", "answers": {"text": []}})"
          "\n")};
  const test::ByteEncoder encoder;
  const SquadDataset dataset(config, encoder);
  EXPECT_EQ(text_of(dataset.at(0).input_ids), "Context: C Question: Q Answer: ye");
  EXPECT_EQ(text_of(dataset.at(0).labels), "______________________________yes");
  EXPECT_EQ(text_of(dataset.at(1).input_ids), "Context: C Question: Q Answer:");
  EXPECT_FALSE(dataset.at(1).has_label());
}

TEST(SquadTest, LimitsRowsUnlessTheSplitHasASlice) {
  SquadConfig config{.split = "train", .limit_dataset_samples = 7};
  EXPECT_EQ(config.source().limit, 7);
  config.split = "train[:100]";
  EXPECT_EQ(config.source().limit, std::nullopt);
}

TEST(SquadTest, NamesTheColumnThatIsMissing) {
  const TemporaryDirectory directory;
  const std::string path =
      directory.write("x.jsonl", "{\"context\": \"C\", \"question\": \"Q\"}\n");
  EXPECT_EQ(error_of<UserError>([&] { check(SquadConfig{.dataset_name = path}); }),
            path + ": no column 'answers'; columns: context, question");
  const std::string flat =
      directory.write("y.jsonl", "{\"context\": \"C\", \"question\": \"Q\", \"answers\": \"A\"}\n");
  EXPECT_EQ(error_of<UserError>(
                [&] { SquadDataset(SquadConfig{.dataset_name = flat}, test::ByteEncoder()); }),
            flat + ":1: column 'answers' must be an object with a list 'text'");
}

TEST(SquadTest, WritesTheChatTemplateOfTheTokenizerOrTheRecipe) {
  const TemporaryDirectory directory;
  SquadConfig config{
      .dataset_name = directory.write(
          "x.jsonl",
          "{\"context\": \"C\", \"question\": \"Q\", \"answers\": {\"text\": [\"A\"]}}\n")};
  test::ByteEncoder encoder;
  encoder.has_template = true;
  encoder.template_text = "{% for m in messages %}{{ m.role[0] }}({{ m.content }}){% endfor %}";
  const Sample sample = SquadDataset(config, encoder).at(0);
  EXPECT_EQ(text_of(sample.input_ids), "u(Context: C Question: Q Answer: )a(A");
  EXPECT_EQ(text_of(sample.labels), std::string(33, '_') + "a(A)");
  config.chat_template = "{% for m in messages %}{{ m.content }};{% endfor %}";
  EXPECT_EQ(text_of(SquadDataset(config, encoder).at(0).input_ids),
            "Context: C Question: Q Answer: ;A");
}

TEST(HellaSwagTest, ContinuesTheContextWithTheRightEnding) {
  const TemporaryDirectory directory;
  HellaSwagConfig config{.path_or_dataset = directory.write(
                             "x.jsonl", R"({"ctx": "abc", "endings": ["X", " de"], "label": "1"})"
                                        "\n"
                                        R"({"ctx": "a", "endings": ["bcdefghijk"], "label": 0})"
                                        "\n")};
  const test::ByteEncoder encoder;
  const HellaSwagDataset padded(config, encoder);
  EXPECT_EQ(text_of(padded.at(0).input_ids), std::string("abc de") + std::string(10, '\0'));
  EXPECT_EQ(text_of(padded.at(0).labels), "__ de___________");
  EXPECT_EQ(padded.at(0).num_attended, 6);
  EXPECT_EQ(padded.at(1).input_ids.size(), 16u);
  config.pad_to_max_length = false;
  const HellaSwagDataset unpadded(config, encoder);
  EXPECT_EQ(text_of(unpadded.at(0).input_ids), "abc de");
  EXPECT_EQ(text_of(unpadded.at(0).labels), "__ de_");
}

TEST(HellaSwagTest, LeavesOutSpecialTokensBetweenContextAndEnding) {
  const TemporaryDirectory directory;
  const HellaSwagConfig config{
      .path_or_dataset =
          directory.write("x.jsonl", "{\"ctx\": \"ab\", \"endings\": [\"c\"], \"label\": 0}\n"),
      .pad_to_max_length = false};
  test::ByteEncoder encoder;
  encoder.bos = 300;
  encoder.adds_special_tokens = true;
  EXPECT_THAT(HellaSwagDataset(config, encoder).at(0).input_ids,
              ElementsAre(300, 'a', 'b', 'c', 256));
}

TEST(HellaSwagTest, RefusesALabelThatIsNoEnding) {
  const TemporaryDirectory directory;
  const std::string path =
      directory.write("x.jsonl", "{\"ctx\": \"ab\", \"endings\": [\"c\"], \"label\": \"\"}\n");
  EXPECT_EQ(
      error_of<UserError>(
          [&] { HellaSwagDataset({.path_or_dataset = path}, test::ByteEncoder()); }),
      path +
          ":1: 'endings' must be a list of texts and 'label' the number of one of them; label is "
          "\"\", endings has 1 entries");
}

TEST(MockIterableTest, MakesShiftedBatchesOfAllowedTokens) {
  MockIterableDataset data({.vocab_size = 4,
                            .seq_len = 50,
                            .num_samples = 2,
                            .batch_size = 2,
                            .exclude_token_ids = std::vector<int64_t>{0, 2}},
                           {});
  const tensor::Batch batch = *data.next();
  const auto ids = flat(batch.input_ids), labels = flat(batch.labels);
  EXPECT_THAT(ids, testing::Each(testing::AnyOf(1, 3)));
  EXPECT_THAT(ids, testing::Contains(1));
  EXPECT_THAT(ids, testing::Contains(3));
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(labels[i], i % 50 == 49 ? -100 : ids[i + 1]);
  EXPECT_TRUE(data.next());
  EXPECT_FALSE(data.next());
  EXPECT_EQ(data.size(), 2);
}

TEST(MockIterableTest, ContinuesExactlyAndOnOtherRanks) {
  const MockIterableDatasetConfig config{.seq_len = 8, .num_samples = 10};
  std::vector<std::vector<int64_t>> one_rank;
  MockIterableDataset whole(config, {});
  for (int i = 0; i < 8; ++i) one_rank.push_back(flat(whole.next()->input_ids));
  MockIterableDataset start(config, {});
  start.next();
  start.next();
  for (int rank = 0; rank < 2; ++rank) {
    MockIterableDataset rest(config, {.num_replicas = 2, .rank = rank});
    rest.load_state(start.state());
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(flat(rest.next()->input_ids), one_rank[static_cast<size_t>(2 + 2 * i + rank)]);
    }
  }
  whole.set_epoch(1);
  EXPECT_NE(flat(whole.next()->input_ids), one_rank[0]);
}

TEST(MockIterableTest, ContinuesAtTheSameSequenceWithOtherBatches) {
  MockIterableDatasetConfig config{.seq_len = 8, .num_samples = 10, .batch_size = 4};
  MockIterableDataset start(config, {});
  start.next();
  const Json state = start.state();
  const std::vector<int64_t> second = flat(start.next()->input_ids);
  config.batch_size = 2;
  MockIterableDataset rest(config, {});
  rest.load_state(state);
  std::vector<int64_t> found;
  for (int i = 0; i < 2; ++i) {
    const std::vector<int64_t> ids = flat(rest.next()->input_ids);
    found.insert(found.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(found, second);
  config.batch_size = 3;
  MockIterableDataset other(config, {});
  EXPECT_EQ(error_of<InputError>([&] { other.load_state(state); }),
            "the saved data position is behind 4 sequences, which are no whole number of batches "
            "of 3; continue with a batch_size that divides them, as 4 does");
}

TEST(MockIterableTest, RefusesImpossibleExclusions) {
  MockIterableDatasetConfig config{.vocab_size = 2, .exclude_token_ids = std::vector<int64_t>{2}};
  EXPECT_EQ(error_of<UserError>([&] { config.validate(); }),
            "exclude_token_ids: 2 is outside [0, 2)");
  config.exclude_token_ids = {0, 1, 1};
  EXPECT_EQ(error_of<UserError>([&] { config.validate(); }),
            "exclude_token_ids leaves none of the 2 token ids");
}

TEST(TextFileTest, CutsOneStreamIntoShiftedSamples) {
  const TemporaryDirectory directory;
  const TextFileDatasetConfig config{.path = {directory.write("x.txt", "abcdefghij")},
                                     .seq_length = 4};
  const TextFileDataset dataset(config, test::ByteEncoder());
  ASSERT_EQ(dataset.size(), 2);
  EXPECT_EQ(text_of(dataset.at(0).input_ids), "abcd");
  EXPECT_EQ(text_of(dataset.at(0).labels), "bcde");
  EXPECT_EQ(text_of(dataset.at(1).input_ids), "efgh");
  EXPECT_EQ(dataset.num_tokens(), 11);
}

TEST(TextFileTest, JoinsTheDocumentsOfJsonRows) {
  const TemporaryDirectory directory;
  TextFileDatasetConfig config{
      .path = {directory.write("x.jsonl",
                               "{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n{\"text\": null}\n")},
      .seq_length = 5};
  EXPECT_EQ(text_of(TextFileDataset(config, test::ByteEncoder()).at(0).input_ids), "ab$cd");
  config.add_eos = false;
  config.add_bos = true;
  test::ByteEncoder encoder;
  encoder.bos = 300;
  EXPECT_EQ(text_of(TextFileDataset(config, encoder).at(0).labels), "ab$cd");
}

TEST(TextFileTest, SplitsBySamples) {
  const TemporaryDirectory directory;
  TextFileDatasetConfig config{.path = {directory.write("x.txt", std::string(101, 'x'))},
                               .seq_length = 10,
                               .split = "train[:80%]",
                               .add_eos = false};
  const test::ByteEncoder encoder;
  EXPECT_EQ(TextFileDataset(config, encoder).size(), 8);
  config.split = "train[80%:]";
  const TextFileDataset rest(config, encoder);
  EXPECT_EQ(rest.size(), 2);
  EXPECT_EQ(rest.origin(0), config.path[0] + " tokens 80 to 90");
}

TEST(TextFileTest, ExplainsTextThatIsMissingOrTooShort) {
  const TemporaryDirectory directory;
  const test::ByteEncoder encoder;
  TextFileDatasetConfig config{.path = {directory.write("x.txt", "abc")}, .seq_length = 4};
  EXPECT_EQ(error_of<UserError>([&] { TextFileDataset(config, encoder); }),
            "dataset " + config.path[0] + " holds 4 tokens; seq_length 4 needs at least 5");
  config.path = {directory.file("none.txt")};
  EXPECT_EQ(error_of<UserError>([&] { check(config); }),
            "dataset file " + config.path[0] + " does not exist");
  config.path = {directory.write("x.jsonl", "{\"body\": \"abc\"}\n")};
  EXPECT_EQ(error_of<UserError>([&] { check(config); }),
            config.path[0] + ":1: no column 'text'; columns: body");
}

}  // namespace
}  // namespace automodel::datasets

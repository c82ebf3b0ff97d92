#include "datasets/retrieval/retrieval_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "datasets/encoders.h"
#include "datasets/rows/python_random.h"
#include "support/errors.h"
#include "support/temporary_directory.h"
#include "tensor/text_labels.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;
using automodel::test::TemporaryDirectory;
using test::ByteEncoder;
using testing::ElementsAre;
using testing::HasSubstr;
using Numbers = std::vector<int64_t>;

constexpr const char* kRows =
    "{\"query\": \"a\", \"pos_doc\": \"bc\", \"neg_doc\": [\"d\", \"efgh\"]}\n"
    "{\"question\": \"i\", \"pos_doc\": [{\"text\": \"j\"}, \"k\"], \"neg_doc\": {\"text\": "
    "\"l\"}}\n";

class RetrievalDatasetTest : public testing::Test {
 protected:
  /// The dataset of a file, whose queries have three passages.
  RetrievalDataset open(const std::string& name, RetrievalTexts texts = {},
                        RetrievalSelection selection = {.entries = {}, .num_passages = 3}) {
    if (selection.entries.empty()) selection.entries = {{folder_.file(name)}};
    return {std::move(selection), std::move(texts), encoder_};
  }
  std::string error(const std::string& name) {
    return error_of<InputError>([&] { open(name).at(0); });
  }
  /// A folder of passages, and a file of questions that name them.
  void write_corpus(const std::string& questions, const std::string& about = "") {
    folder_.write("passages/rows.jsonl",
                  "{\"id\": \"p1\", \"text\": \"one\"}\n{\"id\": 2, \"text\": \"two\"}\n");
    folder_.write("passages/merlin_metadata.json",
                  about.empty() ? R"({"class": "TextQADataset", "corpus_id": "c",
                                      "query_instruction": "Q", "passage_instruction": "P"})"
                                : about);
    folder_.write("with_corpus.json",
                  cat(R"({"corpus": [{"path": "passages"}], "data": [)", questions, "]}"));
  }

  TemporaryDirectory folder_;
  ByteEncoder encoder_;
};

/// The text of each document of a sample.
std::vector<std::string> texts_of(const Sample& sample) {
  std::vector<std::string> texts;
  auto at = sample.input_ids.begin();
  for (const int64_t length : sample.document_lengths) {
    texts.emplace_back(at, at + length);
    at += length;
  }
  return texts;
}

/// The labels of each document of a sample.
std::vector<Numbers> labels_of(const Sample& sample) {
  std::vector<Numbers> labels;
  auto at = sample.labels.begin();
  for (const int64_t length : sample.document_lengths) {
    labels.emplace_back(at, at + length);
    at += length;
  }
  return labels;
}

TEST_F(RetrievalDatasetTest, ASampleIsAQueryWithItsPassagesTheAnswerFirst) {
  folder_.write("rows.jsonl", kRows);
  const RetrievalDataset rows = open("rows.jsonl");
  EXPECT_EQ(rows.size(), 2);
  const Sample first = rows.at(0);
  EXPECT_THAT(texts_of(first), ElementsAre("a", "bc", "d", "efgh"));
  EXPECT_THAT(labels_of(first),
              ElementsAre(Numbers{tensor::kQueryLabel}, Numbers{tensor::kUnnamedPassage, -100},
                          Numbers{tensor::kUnnamedPassage},
                          Numbers{tensor::kUnnamedPassage, -100, -100, -100}));
  EXPECT_EQ(first.num_attended, 8);
  EXPECT_EQ(rows.origin(1), folder_.file("rows.jsonl:2"));
  // The first of several answers; a lone other passage is repeated, of which it warns.
  EXPECT_THAT(texts_of(rows.at(1)), ElementsAre("i", "j", "l", "l"));
  EXPECT_THAT(rows.findings(),
              ElementsAre(HasSubstr("rows.jsonl:2: this question has 1 of the 2 passages")));
}

TEST_F(RetrievalDatasetTest, TextsAreCutAndBeginWithPrefixes) {
  folder_.write("rows.jsonl", kRows);
  RetrievalTexts texts;
  texts.format.query_prefix = "q:";
  texts.format.passage_prefix = "p:";
  texts.format.p_max_len = 5;
  texts.reads_last_token = true;
  const Sample sample = open("rows.jsonl", texts).at(0);
  EXPECT_THAT(texts_of(sample), ElementsAre("q: a", "p: bc", "p: d", "p: ef"));
  EXPECT_EQ(labels_of(sample)[1], (Numbers{-100, -100, -100, -100, tensor::kUnnamedPassage}));
  EXPECT_EQ(sample.num_cut, 2);
  texts.num_positions = 4;
  EXPECT_THAT(error_of<InputError>([&] { open("rows.jsonl", texts).at(0); }),
              HasSubstr("a text of 5 tokens, and the model has positions for 4: q_max_len and "
                        "p_max_len cut texts"));
}

TEST_F(RetrievalDatasetTest, QuestionsNamePassagesOfACorpus) {
  write_corpus(R"({"question": "x", "corpus_id": "c", "pos_doc": [{"id": "p1"}], "neg_doc": [2]},
                  {"question": "y", "corpus_id": "c", "pos_doc": "p1", "neg_doc": [{"id": 2}]})");
  const RetrievalDataset plain = open("with_corpus.json");
  EXPECT_THAT(texts_of(plain.at(0)), ElementsAre("x", "one", "two", "two"));
  EXPECT_EQ(plain.origin(1), folder_.file("with_corpus.json: data[1]"));
  EXPECT_EQ(plain.files().size(), 2U) << "the questions and the passages";
  const std::vector<Numbers> labels = labels_of(plain.at(0));
  EXPECT_GE(labels[1][0], 0);
  EXPECT_NE(labels[1][0], labels[2][0]);
  EXPECT_EQ(labels[2][0], labels[3][0]) << "one passage twice";
  EXPECT_EQ(labels_of(plain.at(1))[1][0], labels[1][0]) << "one passage of two questions";

  RetrievalTexts texts;
  texts.format.use_dataset_instruction = true;
  texts.format.query_prefix = "unread";
  EXPECT_THAT(texts_of(open("with_corpus.json", texts).at(0)),
              ElementsAre("x", "one", "two", "two"));
  const RetrievalDataset told = open("with_corpus.json", texts,
                                     {.entries = {{folder_.file("with_corpus.json")}},
                                      .num_passages = 2,
                                      .gives_instructions = true});
  EXPECT_THAT(texts_of(told.at(0)), ElementsAre("Q x", "P one", "P two"));

  // What a corpus has is what its id says, and questions without a corpus have no instructions.
  write_corpus(R"({"question": "x", "corpus_id": "c", "neg_doc": [2],
                   "pos_doc": [{"id": "p1", "text": "another"}]})");
  EXPECT_EQ(texts_of(open("with_corpus.json").at(0))[1], "one");
  folder_.write("rows.jsonl", kRows);
  EXPECT_THAT(error_of<InputError>([&] {
                open("rows.jsonl", texts,
                     {.entries = {{folder_.file("rows.jsonl")}},
                      .num_passages = 2,
                      .gives_instructions = true});
              }),
              HasSubstr("use_dataset_instruction is for questions whose corpus has instructions"));
}

// The draws below are those of Python's random.Random(seed).sample(range(n), k).

TEST_F(RetrievalDatasetTest, EntriesGiveSoManySamplesAsPythonDrawsThem) {
  EXPECT_EQ(PythonRandom(42).sample(10, 4), (Numbers{1, 0, 4, 9}));
  EXPECT_EQ(PythonRandom(42).sample(1000, 4), (Numbers{654, 114, 25, 759}));
  EXPECT_EQ(PythonRandom(42).sample(30, 6), (Numbers{20, 3, 0, 23, 8, 7}));
  const Numbers many = PythonRandom(7).sample(100, 30);
  EXPECT_EQ(Numbers(many.begin(), many.begin() + 8), (Numbers{41, 19, 50, 83, 6, 9, 68, 12}));
  EXPECT_EQ(std::set<int64_t>(many.begin(), many.end()).size(), 30U);

  std::string rows;
  for (int i = 0; i < 10; ++i) {
    rows += cat("{\"query\": \"", i, "\", \"pos_doc\": \"p\", \"neg_doc\": \"n\"}\n");
  }
  folder_.write("ten.jsonl", rows);
  folder_.write("rows.jsonl", kRows);
  const RetrievalSelection drawn{
      .entries = {{folder_.file("ten.jsonl"), 4}, {folder_.file("rows.jsonl"), 7}},
      .num_passages = 2};
  const auto queries = [&](const RetrievalSelection& selection) {
    const RetrievalDataset dataset = open("", {}, selection);
    std::vector<std::string> all;
    for (int64_t i = 0; i < dataset.size(); ++i) all.push_back(texts_of(dataset.at(i))[0]);
    return all;
  };
  EXPECT_THAT(queries(drawn), ElementsAre("1", "0", "4", "9", "a", "i"));
  RetrievalSelection part = drawn;
  part.first = 1;
  part.most = 3;
  EXPECT_THAT(queries(part), ElementsAre("0", "4", "9"));
  EXPECT_NE(open("", {}, part).order_checksum(), open("", {}, drawn).order_checksum());
  part.shuffles = true;
  const std::vector<std::string> shuffled = queries(part);
  EXPECT_EQ(shuffled.size(), 3U);
  EXPECT_NE(shuffled, queries(drawn));
  part.first = 9;
  EXPECT_THAT(error_of<InputError>([&] { open("", {}, part); }),
              HasSubstr("no question is left of data_dir_list"));
}

TEST_F(RetrievalDatasetTest, WrongRowsAreRefusedWithTheirPlace) {
  const auto error_of_row = [&](const std::string& row) {
    folder_.write("wrong.jsonl", row + "\n");
    return error("wrong.jsonl");
  };
  EXPECT_THAT(error_of_row(R"({"text": "a"})"),
              HasSubstr("wrong.jsonl:1: no 'query' (or 'question')"));
  EXPECT_THAT(error_of_row(R"({"query": 3, "pos_doc": "b"})"),
              HasSubstr("wrong.jsonl:1: the query is"));
  EXPECT_THAT(error_of_row(R"({"query": "a", "pos_doc": []})"),
              HasSubstr("wrong.jsonl:1: no 'pos_doc'"));
  EXPECT_THAT(error_of_row(R"({"query": "a", "pos_doc": "b"})"),
              HasSubstr("wrong.jsonl:1: no 'neg_doc', and n_passages 3 asks for 2"));
  EXPECT_THAT(error_of_row(R"({"query": "a", "pos_doc": {"id": 3}, "neg_doc": "n"})"),
              HasSubstr("wrong.jsonl:1: pos_doc: a passage without 'text'"));
  EXPECT_THAT(error_of_row(R"({"query": "a", "pos_doc": [7], "neg_doc": "n"})"),
              HasSubstr("wrong.jsonl:1: pos_doc: a passage is"));
  EXPECT_THAT(error_of_row(R"({"query": "", "pos_doc": "b", "neg_doc": "n"})"),
              HasSubstr("wrong.jsonl:1: a text without any token"));
  folder_.write("image.jsonl",
                R"({"query": "a", "pos_doc": {"text": "b", "image": "c.png"}, "neg_doc": "n"})");
  EXPECT_THAT(error_of<UnsupportedError>([&] { open("image.jsonl").at(0); }),
              HasSubstr("passages that are images are not in this version"));
}

TEST_F(RetrievalDatasetTest, WrongCorporaAreRefused) {
  const std::string question =
      R"({"question": "x", "corpus_id": "c", "pos_doc": "p9", "neg_doc": "p1"})";
  write_corpus(question);
  EXPECT_THAT(error("with_corpus.json"),
              HasSubstr("data[0]: pos_doc names passage 'p9', which the corpus 'c' does not have"));
  write_corpus(R"({"question": "x", "corpus_id": "d", "pos_doc": "p1", "neg_doc": "p1"})");
  EXPECT_THAT(error("with_corpus.json"), HasSubstr("corpus_id 'd' is none of this file's: c"));
  write_corpus(question, R"({"class": "ImageDataset", "corpus_id": "c"})");
  EXPECT_THAT(error("with_corpus.json"), HasSubstr("class 'ImageDataset' is not in this version"));
  write_corpus(question);
  folder_.write("passages/rows.jsonl",
                "{\"id\": \"p1\", \"text\": \"one\"}\n{\"id\": \"p1\", \"text\": \"two\"}\n");
  EXPECT_THAT(error("with_corpus.json"), HasSubstr("the id 'p1' is also that of"));
  EXPECT_THAT(error_of<InputError>([] { questions_of_hub({"hf://name/alone"}); }),
              HasSubstr("is not hf://ORGANIZATION/NAME/SUBSET"));
}

TEST_F(RetrievalDatasetTest, HubEntriesAreASubsetAndItsPassages) {
  const QuestionEntry entry{"hf://org/set/FEVER"};
  EXPECT_EQ(questions_of_hub(entry).paths, std::vector<std::string>{"org/set"});
  EXPECT_EQ(questions_of_hub(entry).name, "FEVER");
  EXPECT_EQ(passages_of_hub(entry).name, "FEVER_corpus");
}

}  // namespace
}  // namespace automodel::datasets

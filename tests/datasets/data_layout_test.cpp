#include "datasets/rows/data_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "datasets/rows/data_card.h"
#include "support/errors.h"

namespace automodel::datasets {
namespace {

using automodel::test::error_of;
using testing::ElementsAre;

constexpr const char* kCard = R"(---
license: mit
configs:
- config_name: plain_text
  default: true
  data_files:
  - split: train
    path: plain_text/train-*
  - split: validation
    path: plain_text/validation-*
- config_name: small
  data_files:
    train: ["few/[a-b].jsonl", "few/z.jsonl"]
    extra: few/x.jsonl
- config_name: other
  data_dir: more
---
# A data set
)";

const std::vector<std::string> kFiles = {".gitattributes",
                                         "README.md",
                                         "few/a.jsonl",
                                         "few/b.jsonl",
                                         "few/c.jsonl",
                                         "few/x.jsonl",
                                         "few/z.jsonl",
                                         "more/test.csv",
                                         "more/train.csv",
                                         "plain_text/train-00000-of-00001.parquet",
                                         "plain_text/validation-00000-of-00001.parquet"};

std::vector<std::string> find(const std::optional<std::string>& name, const std::string& split,
                              const std::string& card = kCard) {
  return find_layout(kFiles, card, name, "dataset 'x'").files_of(split, "dataset 'x'");
}

TEST(DataLayoutTest, TheCardSaysWhichFilesASplitHas) {
  EXPECT_THAT(find(std::nullopt, "train"), ElementsAre("plain_text/train-00000-of-00001.parquet"));
  EXPECT_THAT(find("plain_text", "validation"),
              ElementsAre("plain_text/validation-00000-of-00001.parquet"));
  EXPECT_THAT(find("small", "train"), ElementsAre("few/a.jsonl", "few/b.jsonl", "few/z.jsonl"));
  EXPECT_THAT(find("small", "extra"), ElementsAre("few/x.jsonl"));
  EXPECT_THAT(find("other", "test"), ElementsAre("more/test.csv"));
}

TEST(DataLayoutTest, WhatTheCardDoesNotHaveIsNamed) {
  EXPECT_EQ(error_of<InputError>([] { find("smal", "train"); }),
            "dataset 'x' has no configuration 'smal'; did you mean 'small'?; its README.md has: "
            "plain_text, small, other");
  EXPECT_EQ(error_of<InputError>([] { find("small", "test"); }),
            "dataset 'x' has no split 'test'; by the names of its files it has: train, extra");
  EXPECT_EQ(error_of<InputError>([] {
              find(std::nullopt, "train", "---\nconfigs:\n- config_name: a\n- config_name: b\n---");
            }),
            "dataset 'x' has several configurations and no default one: choose by `name`; its "
            "README.md has: a, b");
  EXPECT_EQ(error_of<InputError>([] {
              find(std::nullopt, "train", "---\nconfigs:\n- data_files: none/*.csv\n---");
            }),
            "dataset 'x': no file that can be read is called none/*.csv, as its README.md says of "
            "split 'train'");
}

TEST(DataLayoutTest, NamesOfShardsSayAnySplit) {
  const std::vector<std::string> files = {"data/train_sft-00000-of-00002.parquet",
                                          "data/train_sft-00001-of-00002.parquet",
                                          "data/test_gen-00000-of-00001.parquet"};
  const DataLayout layout = find_layout(files, "", std::nullopt, "x");
  EXPECT_THAT(layout.files_of("train_sft", "x"), ElementsAre(files[0], files[1]));
  EXPECT_THAT(layout.files_of("test_gen", "x"), ElementsAre(files[2]));
  EXPECT_EQ(error_of<InputError>([&] { layout.files_of("train", "x"); }),
            "x has no split 'train'; by the names of its files it has: test_gen, train_sft");
}

/// The files of each split that names say: "train: a b; test: c".
std::string splits_of(const std::vector<std::string>& files, const std::string& card = "") {
  std::vector<std::string> splits;
  for (const SplitFiles& one : find_layout(files, card, std::nullopt, "dataset 'x'").splits) {
    splits.push_back(cat(one.split, ": ", join(one.files, " ")));
  }
  return join(splits, "; ");
}

TEST(DataLayoutTest, NamesAreReadAsTheDatasetsPackageReadsThem) {
  EXPECT_EQ(splits_of({"a.jsonl", "b.jsonl"}), "train: a.jsonl b.jsonl");
  EXPECT_EQ(splits_of({"train.jsonl", "test/x.jsonl"}), "test: test/x.jsonl");  // folders first
  EXPECT_EQ(splits_of({"train_val.jsonl", "val.jsonl"}),
            "train: train_val.jsonl; validation: val.jsonl train_val.jsonl");
  EXPECT_EQ(splits_of({"b_train.jsonl", "train_a.jsonl"}), "train: train_a.jsonl b_train.jsonl");
  EXPECT_EQ(splits_of({"Test.jsonl", "Train.jsonl"}), "train: Test.jsonl Train.jsonl");
  EXPECT_EQ(splits_of({"train.jsonl", "train_extra/test.jsonl"}), "train: train_extra/test.jsonl");
  EXPECT_EQ(splits_of({"a.json", "config.json", "dataset_dict.json"}), "train: a.json");
  EXPECT_EQ(splits_of({"a.json", "state.json"}), "train: a.json state.json");
  EXPECT_EQ(splits_of({"__x/b.jsonl", "a.jsonl"}), "train: a.jsonl");
  EXPECT_EQ(splits_of({"__b.jsonl", "a.jsonl"}), "train: __b.jsonl a.jsonl");
  EXPECT_EQ(splits_of({"data/extra-00000-of-00001.parquet", "data/test-00000-of-00001.parquet",
                       "data/train-00000-of-00001.parquet"}),
            "train: data/train-00000-of-00001.parquet; test: data/test-00000-of-00001.parquet; "
            "extra: data/extra-00000-of-00001.parquet");
  EXPECT_EQ(splits_of({"a.jsonl", "b.csv"}), "train: a.jsonl");
  EXPECT_EQ(splits_of({"data-eval1.jsonl", "retrained.jsonl"}), "test: data-eval1.jsonl");
}

TEST(DataLayoutTest, ACardsListKeepsItsOrder) {
  const auto of = [](const char* paths) {
    return splits_of({"a.jsonl", "b.jsonl", "c1.jsonl"},
                     cat("\xEF\xBB\xBF\n---\nconfigs:\n- config_name: d\n  data_files:\n"
                         "  - split: train\n    path: ",
                         paths, "\n---\n"));
  };
  EXPECT_EQ(of("[b.jsonl, a.jsonl]"), "train: b.jsonl a.jsonl");
  EXPECT_EQ(of("['./b.jsonl']"), "train: b.jsonl");
  EXPECT_EQ(of("['[!b]*.jsonl']"), "train: a.jsonl c1.jsonl");
  EXPECT_EQ(of("['[^ab]*.jsonl']"), "train: a.jsonl b.jsonl");  // no negation
}

TEST(DataLayoutTest, OfSeveralKindsTheCommonestIsTaken) {
  const DataLayout layout = find_layout({"a.csv", "notes.json", "b.csv"}, "", std::nullopt, "x");
  EXPECT_THAT(layout.files_of("train", "x"), ElementsAre("a.csv", "b.csv"));
}

TEST(DataLayoutTest, PatternsAreThoseOfPaths) {
  EXPECT_TRUE(matches_pattern("a/b.jsonl", "a/*.jsonl"));
  EXPECT_FALSE(matches_pattern("a/c/b.jsonl", "a/*.jsonl"));
  EXPECT_TRUE(matches_pattern("a/c/b.jsonl", "a/**/*.jsonl"));
  EXPECT_TRUE(matches_pattern("a/b.jsonl", "a/**/*.jsonl"));
  EXPECT_TRUE(matches_pattern("a/c/b.jsonl", "**"));
  EXPECT_TRUE(matches_pattern("b1.csv", "b?.csv"));
  EXPECT_TRUE(matches_pattern("b7.csv", "b[0-9].csv"));
  EXPECT_FALSE(matches_pattern("bx.csv", "b[0-9].csv"));
  EXPECT_FALSE(matches_pattern("a/b.csv", "*.csv"));
  // Takes no time that grows with the stars.
  EXPECT_FALSE(matches_pattern(std::string(200, 'a'), std::string(60, '*') + "a*a*a*a*a*a*b"));
}

TEST(DataLayoutTest, ANegatedSetHasNoSlash) {
  EXPECT_TRUE(matches_pattern("sxa", "s[!q]a"));
  EXPECT_FALSE(matches_pattern("sqa", "s[!q]a"));
  EXPECT_FALSE(matches_pattern("s/a", "s[!q]a"));
  EXPECT_TRUE(matches_pattern("b", "[!^]"));
  EXPECT_FALSE(matches_pattern("^", "[!^]"));
}

TEST(DataLayoutTest, AListOfFilesThatCannotBeReadIsNotPassedOver) {
  const std::string list = "configs:\n- config_name: a\n  data_files: a.jsonl\n";
  for (const char* fault : {"\tx: 1", "  x: !!foo 1", "configs: []"}) {
    const std::string text = cat("---\n", list, fault, "\n---\n");
    EXPECT_THAT(error_of<UserError>([&] { read_card(text, "README.md"); }),
                testing::StartsWith("README.md: its `configs`, which say what files there are, "
                                    "cannot be read: line "));
  }
  EXPECT_THAT(error_of<UserError>([&] {
                return read_card("---\n\"configs\":\n- a: 1\n  a: 2\n---\n", "README.md");
              }),
              testing::HasSubstr("line 3 of its head: "));
  for (const char* form :
       {"configs :\n- config_name: a\n", "  configs:\n  - config_name: a\n",
        "{license: mit, configs: [{config_name: a}]}\n", "configs: [\n  {config_name: a}\n]\n",
        "x: &n a\nconfigs:\n- config_name: *n\n"}) {
    const std::vector<CardConfig> configs = read_card(cat("---\n", form, "---\n"), "README.md");
    ASSERT_EQ(configs.size(), 1U) << form;
    EXPECT_EQ(configs[0].name, "a");
  }
  for (const char* other : {"x: !!set {a, b}\n", "x: !!foo 1\n", "? null\n: 1\n", "x: {\n"}) {
    for (const std::string& head : {cat(list, other), cat(other, list)}) {
      const std::vector<CardConfig> configs = read_card(cat("---\n", head, "---\n"), "README.md");
      ASSERT_EQ(configs.size(), 1U) << head;
      EXPECT_EQ(configs[0].name, "a");
    }
  }
}

TEST(DataLayoutTest, CardsWithoutAHeadOrWithOtherThingsSayNothing) {
  for (const char* text : {"", "# words", "---\nlicense: mit\n---\n", "---\nno end",
                           "---\n[unclosed\n---\n", "---\nconfigs:\n---\n"}) {
    EXPECT_TRUE(read_card(text, "README.md").empty()) << text;
  }
}

}  // namespace
}  // namespace automodel::datasets

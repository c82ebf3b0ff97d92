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

TEST(DataLayoutTest, CardsWithoutAHeadOrWithOtherThingsSayNothing) {
  for (const char* text : {"", "# words", "---\nlicense: mit\n---\n", "---\nno end",
                           "---\n[unclosed\n---\n", "---\nconfigs:\n---\n"}) {
    EXPECT_TRUE(read_card(text, "README.md").empty()) << text;
  }
}

}  // namespace
}  // namespace automodel::datasets

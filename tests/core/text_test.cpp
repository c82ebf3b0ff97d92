#include "core/text.h"

#include <gtest/gtest.h>

namespace automodel {
namespace {

TEST(TextTest, CatWritesTheShortestDigitsThatReadBack) {
  EXPECT_EQ(cat("x=", 0.1, ", n=", 3, ", ", true, '!'), "x=0.1, n=3, true!");
}

TEST(TextTest, JoinFirstCountsWhatItLeavesOut) {
  const std::vector<std::string> names = {"a", "b", "c"};
  EXPECT_EQ(join_first(names, 3), "a, b, c");
  EXPECT_EQ(join_first(names, 1), "a and 2 more");
  const std::vector<int64_t> ids = {5, 9};
  EXPECT_EQ(join_first(ids, 1), "5 and 1 more");
  EXPECT_EQ(join_first(std::vector<int64_t>{}, 1), "");
}

TEST(TextTest, EditDistanceCountsASwapAsOne) {
  EXPECT_EQ(edit_distance("max_setps", "max_steps"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
}

TEST(TextTest, SuggestsOnlyWhatIsNear) {
  const std::vector<std::string> keys = {"max_steps", "num_epochs"};
  EXPECT_EQ(did_you_mean("max_step", keys), "; did you mean 'max_steps'?");
  EXPECT_EQ(did_you_mean("zebra", keys), "");
}

TEST(TextTest, AShellReadsAWordAsItWas) {
  EXPECT_EQ(shell_word("runs/a-1.yaml"), "runs/a-1.yaml");
  EXPECT_EQ(shell_word("my data/r.yaml"), "'my data/r.yaml'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(TextTest, FormatsBytesAndDurations) {
  EXPECT_EQ(format_bytes(17), "17 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(uint64_t{3} << 30), "3 GiB");
  EXPECT_EQ(format_duration(3.21), "3.2 s");
  EXPECT_EQ(format_duration(125), "2 min 05 s");
  EXPECT_EQ(format_duration(3720), "1 h 02 min");
  EXPECT_EQ(format_duration(1e300), "forever");
}

TEST(TextTest, ParsesOnlyWholeTexts) {
  EXPECT_EQ(parse_int("42"), 42);
  EXPECT_FALSE(parse_int("42x"));
  EXPECT_EQ(parse_double("1e-3"), 1e-3);
}

}  // namespace
}  // namespace automodel

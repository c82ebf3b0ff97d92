#include "core/python_pattern.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace automodel {
namespace {

bool finds(const std::string& expression, const std::string& text) {
  return PythonPattern(expression).is_in(text);
}

std::string why_not(const std::string& expression) {
  try {
    const PythonPattern pattern(expression);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(PythonPatternTest, ReadsWhatPythonReads) {
  EXPECT_TRUE(finds("norm.weight\\Z", "model.norm.weight"));
  EXPECT_FALSE(finds("norm\\Z", "model.norm.weight"));
  EXPECT_TRUE(finds("\\Amodel", "model.norm.weight"));
  EXPECT_FALSE(finds("\\Anorm", "model.norm.weight"));
  EXPECT_TRUE(finds("(?i)NORM", "model.norm.weight"));
  EXPECT_FALSE(finds("(?<!q_)norm", "q_norm"));
  EXPECT_TRUE(finds("(?P<a>q)_(?P=a)", "q_q"));
  EXPECT_TRUE(finds("layers\\.\\d+\\.", "model.layers.12.mlp"));
  EXPECT_TRUE(finds("^a{,2}$", "aa"));
  EXPECT_FALSE(finds("^a{,2}$", "a{,2}"));
  EXPECT_TRUE(finds("^a{,x}$", "a{,x}"));
  EXPECT_TRUE(finds("^[[:a]+$", "[:a"));
  EXPECT_TRUE(finds("^[]x]+$", "]x]"));
  EXPECT_FALSE(finds("^[^]x]$", "]"));
}

TEST(PythonPatternTest, AWholeTextMayMatchByALaterAlternative) {
  const PythonPattern pattern("q|q_proj");
  EXPECT_TRUE(pattern.is_all_of("q_proj"));
  EXPECT_FALSE(pattern.is_all_of("xq_proj"));
  EXPECT_FALSE(pattern.is_all_of("q_proj.x"));
  EXPECT_TRUE(pattern.is_in("xq_proj"));
}

TEST(PythonPatternTest, SaysWhatIsWrong) {
  EXPECT_EQ(why_not("(a"), "missing closing parenthesis");
  EXPECT_EQ(why_not("\\ha"), "\\h is not understood");
  EXPECT_NE(why_not(std::string(300, '(') + std::string(300, ')')), "");
  EXPECT_EQ(why_not(std::string(20000, '(')), "it has 20000 bytes, more than 10000");
  EXPECT_EQ(why_not("a\\"), "\\ at end of pattern");
}

TEST(PythonPatternTest, EndsWhereAMatchTakesTooManySteps) {
  const PythonPattern pattern("^(([a-z])+)+[!?]");
  EXPECT_THROW(pattern.is_in(std::string(64, 'a')), UserError);
}

}  // namespace
}  // namespace automodel

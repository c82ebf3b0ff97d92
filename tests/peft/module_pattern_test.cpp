#include "peft/module_pattern.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace automodel::peft {
namespace {

ModulePattern pattern_of(const std::string& json) {
  const Json value = Json::parse(json, "test");
  return {"rank_pattern", &value};
}

std::string error_of(const std::string& json) {
  try {
    pattern_of(json);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(ModulePatternTest, NamesAreWholeOrEndsBehindADot) {
  const ModulePattern pattern = pattern_of(R"({"self_attn.q_proj": 3, "proj": 4})");
  EXPECT_EQ(pattern.find("model.layers.0.self_attn.q_proj"), 3.0);
  EXPECT_EQ(pattern.find("self_attn.q_proj"), 3.0);
  EXPECT_EQ(pattern.find("my_self_attn.q_proj"), std::nullopt);
  EXPECT_EQ(pattern.find("model.layers.0.self_attn.q_proj.base"), std::nullopt);
  EXPECT_EQ(pattern.find("model.k_proj"), std::nullopt);
  EXPECT_EQ(pattern.find("model.proj"), 4.0);
}

TEST(ModulePatternTest, TheFirstOfSeveralExpressionsCounts) {
  const ModulePattern pattern = pattern_of(
      R"({"layers\\.[02]\\..*": 1, ".*q_proj": 2, "^model\\.layers\\.1\\.(k|v)_proj$": 5})");
  EXPECT_EQ(pattern.find("model.layers.0.q_proj"), 1.0);
  EXPECT_EQ(pattern.find("model.layers.1.q_proj"), 2.0);
  EXPECT_EQ(pattern.find("model.layers.1.v_proj"), 5.0);
  EXPECT_EQ(pattern.find("other.model.layers.1.v_proj"), std::nullopt);
  EXPECT_EQ(pattern.find("model.layers.3.v_proj"), std::nullopt);
}

TEST(ModulePatternTest, ExpressionsArePythons) {
  EXPECT_EQ(pattern_of(R"({"(?P<a>q)_proj": 8})").find("model.q_proj"), 8.0);
  EXPECT_EQ(pattern_of(R"({"\\Aq_proj": 8})").find("model.q_proj"), std::nullopt);
  EXPECT_EQ(pattern_of(R"({"(?<!k_)proj": 8})").find("model.proj"), 8.0);
}

TEST(ModulePatternTest, OtherFormsAreRefused) {
  EXPECT_EQ(error_of("[1]"), "rank_pattern is no object of module names and numbers");
  EXPECT_EQ(error_of(R"({"q_proj": "8"})"), "rank_pattern of q_proj is no number");
  EXPECT_EQ(error_of(R"({"(q_proj": 8})"),
            "rank_pattern '(q_proj' is not a regular expression that can be used: missing closing "
            "parenthesis");
}

TEST(ModulePatternTest, NothingHasNoNumbers) {
  const Json null;
  EXPECT_TRUE(ModulePattern().is_empty());
  EXPECT_TRUE(ModulePattern("rank_pattern", &null).is_empty());
  EXPECT_EQ(ModulePattern("rank_pattern", nullptr).find("q_proj"), std::nullopt);
}

}  // namespace
}  // namespace automodel::peft

#include "peft/module_matcher.h"

#include <gtest/gtest.h>

namespace automodel::peft {
namespace {

const char* const kProjection = "model.layers.1.self_attn.q_proj";

TEST(WildcardMatchTest, StandsForTheWholeName) {
  EXPECT_FALSE(wildcard_match("q_proj", kProjection));
  EXPECT_TRUE(wildcard_match("*q_proj", kProjection));
  EXPECT_TRUE(wildcard_match("*.q_proj", kProjection));
  EXPECT_TRUE(wildcard_match("model.layers.1.self_attn.q_proj", kProjection));
  EXPECT_FALSE(wildcard_match("*.self_attn", kProjection));
  EXPECT_TRUE(wildcard_match("*.self_attn*", kProjection));
  EXPECT_TRUE(wildcard_match("*", kProjection));
  EXPECT_TRUE(wildcard_match("*", ""));
  EXPECT_FALSE(wildcard_match("", kProjection));
}

TEST(WildcardMatchTest, TakesAStarForAnyTextAndADotForAnyCharacter) {
  EXPECT_TRUE(wildcard_match("*layers*q_proj", kProjection));
  EXPECT_TRUE(wildcard_match("model.layers.*.q_proj", kProjection));
  EXPECT_TRUE(wildcard_match("model_layers_1_self_attn_q_proj", "model_layers_1_self_attn_q_proj"));
  EXPECT_TRUE(wildcard_match("model.layers.1.self.attn.q.proj", kProjection));
  EXPECT_FALSE(wildcard_match("*.k_proj", kProjection));
  EXPECT_TRUE(wildcard_match(".*q_proj", kProjection));
}

TEST(WildcardMatchTest, TakesWhatStandsBehindAWholePartForThatPartAndItsChildren) {
  EXPECT_TRUE(wildcard_match("*.b.*", "a.b"));
  EXPECT_TRUE(wildcard_match("*.b.*", "a.b.c"));
  EXPECT_FALSE(wildcard_match("*.b.*", "a.bc"));
  EXPECT_TRUE(wildcard_match("*.layers.1.*", kProjection));
  EXPECT_FALSE(wildcard_match("*.layers.1.*", "model.layers.10.self_attn.q_proj"));
  EXPECT_TRUE(wildcard_match("*.layers.1.*.q_proj", kProjection));
  EXPECT_FALSE(wildcard_match("*.layers.1.*.q_proj", "model.layers.10.self_attn.q_proj"));
  EXPECT_FALSE(wildcard_match("*layers1.*", "layers10.q"));
  EXPECT_TRUE(wildcard_match("*attn.*", kProjection)) << "a fragment is followed by any text";
}

TEST(ModuleMatcherTest, ChoosesProjectionsWhereTheSectionChoosesNothing) {
  const ModuleMatcher matcher({});
  EXPECT_EQ(matcher.match(kProjection), "*_proj");
  EXPECT_EQ(matcher.match("lm_head"), std::nullopt);
}

TEST(ModuleMatcherTest, TellsWhichPatternHasChosen) {
  PeftConfig config;
  config.target_modules = {"*k_proj", "*q_proj", "*"};
  EXPECT_EQ(ModuleMatcher(config).match(kProjection), "*q_proj");
  EXPECT_EQ(ModuleMatcher(config).match("lm_head"), "*");
}

TEST(ModuleMatcherTest, LeavesExcludedLayersOut) {
  PeftConfig config;
  config.exclude_modules = {"*.q_proj", "lm_head"};
  const ModuleMatcher matcher(config);
  EXPECT_EQ(matcher.match(kProjection), std::nullopt);
  EXPECT_EQ(matcher.match("lm_head"), std::nullopt);
  EXPECT_EQ(matcher.match("model.layers.1.self_attn.k_proj"), "all linear layers");
}

TEST(ModuleMatcherTest, TakesAllLinearLayers) {
  PeftConfig config;
  config.match_all_linear = true;
  EXPECT_EQ(ModuleMatcher(config).match("lm_head"), "all linear layers");
}

TEST(NearestPatternTest, NamesWhatMayBeMeant) {
  const std::vector<std::string> names = {kProjection, "model.layers.1.mlp.down_proj"};
  EXPECT_EQ(nearest_pattern("q_proj", names), "*.q_proj");
  EXPECT_EQ(nearest_pattern("self_attn", names), "*self_attn*");
  EXPECT_EQ(nearest_pattern("*.dwon_proj", names), "*.down_proj");
  EXPECT_EQ(nearest_pattern("*.in_linear_layer", names), "");
  EXPECT_EQ(nearest_pattern("*.self_attn", names), "*.self_attn*");
  EXPECT_EQ(nearest_pattern("*down", names), "*down*");
  EXPECT_EQ(nearest_pattern("", names), "");
  EXPECT_EQ(nearest_pattern("*.", names), "");
}

}  // namespace
}  // namespace automodel::peft

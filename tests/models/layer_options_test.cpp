// What keys of config.json mean where the layers of a family differ, or older keys stand for newer.
#include <gtest/gtest.h>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "models/decoder/decoder_model.h"
#include "support/temporary_directory.h"

namespace automodel::models {
namespace {

Json config_of(const std::string& golden) {
  return Json::parse_file(test::source_file(cat("tests/golden/", golden, "/config.json")));
}

std::string problems_of(const Json& config) {
  return join(check_config(config), "\n");
}

decoder::DecoderConfig decoder_config_of(const Json& config) {
  EXPECT_EQ(problems_of(config), "");
  const auto model = build_causal_lm(config, at::kFloat);
  return dynamic_cast<decoder::DecoderModel&>(*model).config();
}

/// A letter a layer: w for a window, f for a full one, in capitals where it rotates.
std::string windows_of(const decoder::DecoderConfig& config) {
  std::string out;
  for (const auto& layer : config.layers) {
    const bool has_window = layer.window > 0;
    out += layer.rope >= 0 ? (has_window ? 'W' : 'F') : (has_window ? 'w' : 'f');
  }
  return out;
}

TEST(ExaoneConfigTest, LayersWithoutAWindowDoNotRotateUnlessThereIsNone) {
  Json config = config_of("exaone4");
  config.erase("layer_types");
  EXPECT_EQ(windows_of(decoder_config_of(config)), "WWWf");
  config["sliding_window_pattern"] = Json(int64_t{2});
  EXPECT_EQ(windows_of(decoder_config_of(config)), "WfWf");
  config["sliding_window"] = Json();
  EXPECT_EQ(windows_of(decoder_config_of(config)), "FFFF");
  config["sliding_window_pattern"] = Json("LLLG");  // released files have both
  config["sliding_window"] = Json(int64_t{6});
  config["layer_types"] = Json(
      Json::Array{"full_attention", "sliding_attention", "sliding_attention", "full_attention"});
  EXPECT_EQ(windows_of(decoder_config_of(config)), "fWWf");
}

TEST(Olmo3ConfigTest, TheOldFormsScalingIsThatOfFullLayers) {
  Json config = config_of("olmo3");
  config.erase("layer_types");
  EXPECT_EQ(windows_of(decoder_config_of(config)), "WWWF");
  config["rope_scaling"] = config["rope_parameters"]["full_attention"];
  config["rope_scaling"].erase("rope_theta");
  config.erase("rope_parameters");
  config["rope_theta"] = Json(1e6);
  const decoder::DecoderConfig found = decoder_config_of(config);
  ASSERT_EQ(found.ropes.size(), 2u);
  EXPECT_EQ(found.ropes[0].type, nn::RopeType::kYarn);
  EXPECT_EQ(found.ropes[0].theta, 1e6);
  EXPECT_EQ(found.ropes[1].type, nn::RopeType::kDefault);
  EXPECT_EQ(found.ropes[1].theta, 500000.0);  // as transformers' class takes it
  EXPECT_EQ(found.layers[0].rope, 1);
  EXPECT_EQ(found.layers[3].rope, 0);
  config["rope_parameters"] = Json::object();
  config["rope_parameters"]["rope_type"] = Json("default");
  EXPECT_NE(problems_of(config).find("rope_parameters must be by layer type"), std::string::npos);
}

TEST(NeoXConfigTest, OldKeysSayHowHeadsRotate) {
  Json config = config_of("gpt_neox");
  config.erase("rope_parameters");
  EXPECT_EQ(decoder_config_of(config).ropes[0].rotary_dim, 2);  // a quarter of 8
  config["rotary_pct"] = Json(0.5);
  config["rotary_emb_base"] = Json(5000.0);
  EXPECT_EQ(decoder_config_of(config).ropes[0].rotary_dim, 4);
  EXPECT_EQ(decoder_config_of(config).ropes[0].theta, 5000.0);
  config["hidden_dropout"] = Json(0.25);
  EXPECT_EQ(decoder_config_of(config).residual_dropout, 0.25);
  EXPECT_EQ(decoder_config_of(config).embedding_dropout, 0.25);
}

TEST(NeoXConfigTest, TheHeadIsReadByBothNames) {
  const auto model = build_causal_lm(config_of("gpt_neox"), at::kFloat);
  EXPECT_EQ(model->stand_ins().at("embed_out.weight"), "lm_head.weight");
  EXPECT_EQ(name_in_modules(config_of("gpt_neox"), "embed_out"), "lm_head");
}

TEST(DeepseekV2ConfigTest, GroupsCountOnlyWhereTheyLimitTheChoice) {
  Json config = config_of("deepseek_v2");
  EXPECT_EQ(decoder_config_of(config).moe->n_expert_groups, 4);
  config["topk_method"] = Json("greedy");
  EXPECT_EQ(decoder_config_of(config).moe->n_expert_groups, 1);
  config["topk_method"] = Json("group_limited_greedy");
  config["topk_group"] = Json(int64_t{5});
  EXPECT_NE(problems_of(config).find("topk_group 5 is more than n_group 4"), std::string::npos);
}

TEST(Dots1ConfigTest, WindowsAreThoseOfUpperLayersUnlessNull) {
  Json config = config_of("dots1");
  config.erase("layer_types");
  EXPECT_EQ(windows_of(decoder_config_of(config)), "FFW");
  config["max_window_layers"] = Json(int64_t{1});
  EXPECT_EQ(windows_of(decoder_config_of(config)), "FWW");
  config["sliding_window"] = Json();
  EXPECT_EQ(windows_of(decoder_config_of(config)), "FFF");
}

/// As `_init_weights` of transformers' class: norms that multiply by 1 + weight begin at 2.
TEST(Nemotron4ConfigTest, WeightsOfLayerNormsBeginAsOnes) {
  const auto model = build_causal_lm(config_of("nemotron"), at::kFloat);
  for (const ParameterInit& init : model->initial_values()) {
    if (!init.parameter.ends_with("norm.weight")) continue;
    EXPECT_EQ(init.rule.kind, tensor::InitRule::Kind::kConstant) << init.parameter;
    EXPECT_EQ(init.rule.a, 1.0) << init.parameter;
  }
}

}  // namespace
}  // namespace automodel::models

#include "models/decoder/embedder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "models/read_config.h"
#include "support/errors.h"

namespace automodel::models {
namespace {

using testing::HasSubstr;

/// A golden's configuration, of its family's model that makes embeddings.
Json embedder_config(const std::string& golden) {
  Json config = config_of(golden);
  config["architectures"] = Json(Json::Array{Json(embedder_of(config))});
  config["pooling"] = "avg";
  return config;
}

TEST(EmbedderTest, AWindowReachesAsFarToBothSides) {
  Json config = embedder_config("qwen2_window");
  const auto windows = [](const Json& of) {
    const auto model = build_causal_lm(of, at::kFloat);
    std::vector<int64_t> all;
    for (const auto& layer : options_of(*model).layers) all.push_back(layer.window);
    return all;
  };
  std::vector<int64_t> causal = windows(config_of("qwen2_window"));
  EXPECT_THAT(causal, testing::Contains(testing::Gt(0)));
  EXPECT_FALSE(options_of(*build_causal_lm(config, at::kFloat)).is_causal);
  std::vector<int64_t> both = causal;
  for (int64_t& window : both) {
    if (window > 0) ++window;
  }
  EXPECT_EQ(windows(config), both);
  config["is_causal"] = true;
  EXPECT_TRUE(options_of(*build_causal_lm(config, at::kFloat)).is_causal);
  EXPECT_EQ(windows(config), causal);
}

TEST(EmbedderTest, NamesHaveNoPrefixAndThereIsNoHead) {
  const Json config = embedder_config("llama_default");
  EXPECT_TRUE(makes_embeddings(config));
  EXPECT_FALSE(makes_embeddings(config_of("llama_default")));
  const auto model = build_causal_lm(config, at::kFloat);
  EXPECT_EQ(model->architecture(), "LlamaModel");
  EXPECT_EQ(model->key_map().front().name, "embed_tokens.weight");
  for (const auto& part : model->key_map()) {
    EXPECT_FALSE(part.name.starts_with("model.")) << part.name;
    EXPECT_FALSE(part.name.starts_with("lm_head")) << part.name;
  }
  const Json saved = model->hf_config();
  EXPECT_EQ(saved.at("architectures").dump(), R"(["LlamaModel"])");
  EXPECT_EQ(saved.at("pooling").as_string(), "avg");
  EXPECT_FALSE(saved.at("is_causal").as_bool());
}

TEST(EmbedderTest, WhatAttentionToAllTokensIsNotBuiltForIsRefused) {
  const auto refusal = [](const std::string& golden) {
    const Json config = embedder_config(golden);
    return automodel::test::error_of<UserError>([&] { build_causal_lm(config, at::kFloat); });
  };
  EXPECT_THAT(refusal("qwen3_next"), HasSubstr("layers carry a state from token to token"));
  Json config = embedder_config("llama_default");
  config["pooling"] = "middle";
  EXPECT_THAT(automodel::test::error_of<UserError>([&] { build_causal_lm(config, at::kFloat); }),
              HasSubstr("pooling takes avg, mean, weighted_avg, cls, last, found 'middle'"));
  EXPECT_EQ(embedder_of(config_of("classifiers/bert")), "BertModel");
}

}  // namespace
}  // namespace automodel::models

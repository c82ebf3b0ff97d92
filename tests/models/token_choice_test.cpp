// How the next token is chosen by its scores, against transformers
// (scripts/goldens/make_generation_goldens.py).
#include "models/token_choice.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "models/generation_support.h"
#include "models/golden_model.h"
#include "models/text_generator.h"

namespace automodel {
namespace {

using models::TokenChoice;
using models::TokenIds;

const Json& goldens() {
  static const Json all = Json::parse_file(test::source_file("tests/golden/token_choice.json"));
  return all;
}

TokenChoice choice_of(const Json& settings) {
  TokenChoice choice;
  choice.does_sample = settings.get("do_sample", false);
  choice.repetition_penalty = settings.get("repetition_penalty", 1.0);
  choice.temperature = settings.get("temperature", 1.0);
  choice.top_k = settings.get("top_k", 50);
  choice.top_p = settings.get("top_p", 1.0);
  choice.min_p = settings.get("min_p", 0.0);
  return choice;
}

TEST(TokenChoiceTest, ProbabilitiesAreTransformers) {
  at::set_num_threads(1);
  const auto model = test::load_golden_model(test::kWritingFamily);
  model->eval();
  int num_steps = 0;
  for (const Json& sample : goldens().as_array()) {
    if (!sample.contains("probabilities")) continue;
    SCOPED_TRACE(sample.at("settings").dump());
    const TokenChoice choice = choice_of(sample.at("settings"));
    TokenIds text = test::ids_of(sample.at("prompt"));
    const TokenIds written = test::ids_of(sample.at("written"));
    for (size_t step = 0; step < written.size(); ++step) {
      const at::Tensor found =
          models::token_probabilities(test::last_logits(*model, text), text, choice);
      at::Tensor expected = at::zeros_like(found);
      for (const Json& pair : sample.at("probabilities").as_array()[step].as_array()) {
        expected[pair.as_array()[0].as_int()] = pair.as_array()[1].as_double();
      }
      EXPECT_TRUE(at::equal(found > 0, expected > 0)) << "step " << step;
      EXPECT_LT((found - expected).abs().max().item<float>(), 1e-5) << "step " << step;
      text.push_back(written[step]);
      ++num_steps;
    }
  }
  EXPECT_EQ(num_steps, 30);
}

TEST(TokenChoiceTest, RepetitionCostsTheMostLikelyTokenToo) {
  at::set_num_threads(1);
  const auto model = test::load_golden_model(test::kWritingFamily);
  model->eval();
  int num_samples = 0;
  for (const Json& sample : goldens().as_array()) {
    if (sample.contains("probabilities")) continue;
    const TokenIds written = test::ids_of(sample.at("written"));
    models::TextGenerator generator(
        *model, at::kCPU,
        {static_cast<int64_t>(written.size()), {}, choice_of(sample.at("settings"))});
    EXPECT_EQ(generator.write_on({test::ids_of(sample.at("prompt"))}, {})[0], written);
    ++num_samples;
  }
  EXPECT_EQ(num_samples, 2);
}

TEST(TokenChoiceTest, TokensAreDrawnAsOftenAsTheirProbabilitiesSay) {
  const at::Tensor logits = at::tensor({0.5, 2.0, -1.0, 1.5, 0.0}, at::kFloat);
  TokenChoice choice{.does_sample = true, .temperature = 0.8, .top_k = 4};
  const at::Tensor probabilities = models::token_probabilities(logits, {0}, choice);
  std::map<int64_t, int> counts;
  constexpr int kNumDraws = 20'000;
  for (int i = 0; i < kNumDraws; ++i) {
    ++counts[models::choose_token(logits, {0}, choice, static_cast<uint64_t>(i))];
  }
  EXPECT_EQ(counts.count(2), 0);  // not among the four
  for (const int64_t token : {0, 1, 3, 4}) {
    const double expected = probabilities[token].item<double>();
    const double deviation = std::sqrt(expected * (1 - expected) / kNumDraws);
    EXPECT_NEAR(counts[token] / double{kNumDraws}, expected, 4 * deviation) << token;
  }
}

TEST(TokenChoiceTest, WhatIsDrawnFollowsFromSeedNumberAndLength) {
  const at::Tensor logits = at::zeros({1000});
  const auto drawn = [&](uint64_t seed, uint64_t number, size_t length) {
    const TokenChoice choice{.does_sample = true, .seed = seed};
    return models::choose_token(logits, TokenIds(length, 1), choice, number);
  };
  EXPECT_EQ(drawn(1, 2, 3), drawn(1, 2, 3));
  EXPECT_NE(drawn(1, 2, 3), drawn(2, 2, 3));
  EXPECT_NE(drawn(1, 2, 3), drawn(1, 3, 3));
  EXPECT_NE(drawn(1, 2, 3), drawn(1, 2, 4));
}

TEST(TokenChoiceTest, DrawnTextsDoNotDependOnThoseBesideThem) {
  at::set_num_threads(1);
  const auto model = test::load_golden_model(test::kWritingFamily);
  model->eval();
  const std::vector<TokenIds> prompts = {{5, 9, 2, 7, 3, 11}, {4}, {8, 1, 6}};
  models::GenerationOptions options{.max_new_tokens = 12, .end_tokens = {}};
  options.choice.does_sample = true;
  options.choice.temperature = 2;
  models::TextGenerator generator(*model, at::kCPU, options);
  const std::vector<TokenIds> together = generator.write_on(prompts, {}, {7, 8, 9});
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(generator.write_on({prompts[i]}, {}, {7 + i})[0], together[i]) << i;
  }
  EXPECT_NE(generator.write_on({prompts[0]}, {}, {8})[0], together[0]);
}

TEST(TokenChoiceTest, ScoresThatAreNoNumbersAreNamed) {
  const at::Tensor logits = at::full({4}, std::nan(""));
  EXPECT_THROW(models::choose_token(logits, {1}, {.does_sample = true}, 0), InputError);
}

}  // namespace
}  // namespace automodel

// What a model writes behind a prompt: with keys kept and without, against transformers
// (scripts/goldens/make_generation_goldens.py).
#include "models/text_generator.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/json.h"
#include "models/generation_support.h"
#include "models/golden_families.h"
#include "models/golden_model.h"

namespace automodel {
namespace {

using models::TokenIds;

constexpr int64_t kNumNew = 24;

const Json& goldens() {
  static const Json all = Json::parse_file(test::source_file("tests/golden/generation.json"));
  return all;
}

std::vector<TokenIds> prompts_of(const std::string& family) {
  std::vector<TokenIds> prompts;
  for (const Json& sample : goldens().at(family).as_array()) {
    prompts.push_back(test::ids_of(sample.at("prompt")));
  }
  return prompts;
}

/// In groups as large as the decoder takes.
std::vector<TokenIds> written_behind(models::CausalLM& model, const std::vector<TokenIds>& prompts,
                                     int64_t num_new = kNumNew,
                                     const std::vector<int64_t>& end_tokens = {}) {
  models::TextGenerator decoder(model, at::kCPU, {num_new, end_tokens});
  if (decoder.takes_together(prompts)) return decoder.write_on(prompts, {});
  std::vector<TokenIds> written;
  for (const TokenIds& prompt : prompts) written.push_back(decoder.write_on({prompt}, {})[0]);
  return written;
}

std::vector<std::string> written_families() {
  std::vector<std::string> names;
  for (const auto& [name, samples] : goldens().as_object()) names.push_back(name);
  return names;
}

class WritingTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

/// Prompts of several lengths at once; transformers has one at a time.
TEST_P(WritingTest, TokensAreTransformers) {
  const auto model = test::load_golden_model(GetParam());
  model->eval();
  const Json::Array& samples = goldens().at(GetParam()).as_array();
  const auto num_new = static_cast<int64_t>(samples[0].at("written").size());
  const std::vector<TokenIds> written = written_behind(*model, prompts_of(GetParam()), num_new);
  ASSERT_EQ(written.size(), samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(written[i], test::ids_of(samples[i].at("written"))) << "prompt " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, WritingTest, testing::ValuesIn(written_families()),
                         [](const auto& info) { return info.param; });

TEST(TextGeneratorTest, EveryFamilyWritesWhatItsWholeSequencesSay) {
  at::set_num_threads(1);
  int num_keeping = 0;
  for (const std::string& family : test::golden_families()) {
    SCOPED_TRACE(family);
    const auto model = test::load_golden_model(family);
    model->eval();
    if (model->hf_config().get("model_type", "").starts_with("llada")) continue;  // sees both ways
    const std::vector<TokenIds> prompts = {{5, 9, 2, 7, 3, 11}, {4}, {8, 1, 6}};
    num_keeping += models::TextGenerator(*model, at::kCPU, {}).keeps_keys() ? 1 : 0;
    const std::vector<TokenIds> written = written_behind(*model, prompts, 24);
    for (size_t i = 0; i < prompts.size(); ++i) {
      TokenIds ids = prompts[i];
      for (const int64_t token : written[i]) {
        const at::Tensor logits = test::last_logits(*model, ids);
        // The token is the largest but for rounding.
        EXPECT_LE((logits.max() - logits[token]).item<float>(), 1e-4) << "after " << ids.size();
        ids.push_back(token);
      }
      EXPECT_EQ(std::ssize(written[i]), 24);
    }
  }
  EXPECT_GT(num_keeping, 60);
}

TEST(TextGeneratorTest, ASequenceEndsBehindItsEndTokenAndOthersGoOn) {
  const auto model = test::load_golden_model(test::kWritingFamily);
  model->eval();
  const std::vector<TokenIds> prompts = prompts_of(test::kWritingFamily);
  const std::vector<TokenIds> whole = written_behind(*model, prompts);
  const int64_t end = whole[0][2];
  const std::vector<TokenIds> cut = written_behind(*model, prompts, kNumNew, {end});
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto found = std::ranges::find(whole[i], end);
    const auto last = found == whole[i].end() ? found : found + 1;
    EXPECT_EQ(cut[i], TokenIds(whole[i].begin(), last)) << i;
  }
  EXPECT_LE(cut[0].size(), 3U);
}

TEST(TextGeneratorTest, LearnedPositionsEndASequence) {
  const auto model = test::load_golden_model("gpt2");
  model->eval();
  const int64_t most = models::most_positions(*model).value();
  const TokenIds prompt(static_cast<size_t>(most - 3), 5);
  models::TextGenerator decoder(*model, at::kCPU, {kNumNew, {}});
  const std::vector<TokenIds> written = decoder.write_on({prompt, {7, 3}}, {});
  EXPECT_EQ(written[0].size(), 3U);
  EXPECT_EQ(std::ssize(written[1]), std::min(kNumNew, most - 2));
}

TEST(TextGeneratorTest, TakesTogetherWhatRotatesAlike) {
  const auto model =
      test::load_golden_model("phi3_longrope_short");  // beyond 32 positions otherwise
  model->eval();
  const std::vector<TokenIds> prompts = {{5, 9, 2, 7}, {4, 3}};
  const auto takes = [&](int64_t num_new) {
    return models::TextGenerator(*model, at::kCPU, {num_new, {}}).takes_together(prompts);
  };
  EXPECT_TRUE(takes(28));
  EXPECT_FALSE(takes(29));
  EXPECT_FALSE(takes(std::numeric_limits<int64_t>::max()));
}

/// A rank without prompts computes as many forwards as the one that has the most.
TEST(TextGeneratorTest, RanksWithoutPromptsKeepStep) {
  const auto model = test::load_golden_model(test::kWritingFamily);
  model->eval();
  models::TextGenerator decoder(*model, at::kCPU, {kNumNew, {}});
  int num_forwards = 0;
  models::GeneratingRanks ranks;
  ranks.any_goes_on = [&](bool) { return num_forwards < 5; };
  ranks.call = [&](const auto& forward) {
    ++num_forwards;
    return forward();
  };
  EXPECT_TRUE(decoder.write_on({}, ranks).empty());
  EXPECT_EQ(num_forwards, 5);
}

TEST(TextGeneratorTest, LeavesTheModelAsItWas) {
  const auto model = test::load_golden_model(test::kWritingFamily);
  const auto reference = test::read_trusted_safetensors(
      test::golden_file(test::kWritingFamily, "reference.safetensors"));
  const TokenIds ids = {5, 9, 2, 7};
  model->eval();
  const at::Tensor before = test::last_logits(*model, ids);
  written_behind(*model, {ids, {3}});
  EXPECT_TRUE(at::equal(test::last_logits(*model, ids), before));
}

}  // namespace
}  // namespace automodel

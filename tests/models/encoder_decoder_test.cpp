// Models of an encoder and a decoder against what transformers' classes compute
// (scripts/goldens/make_encoder_decoder_goldens.py).

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/file.h"
#include "models/catalog.h"
#include "models/golden_model.h"
#include "models/parity.h"
#include "models/t5/t5_attention.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel {
namespace {

constexpr const char* kFolder = "encoder_decoders/";

std::vector<std::string> names() {
  return list_directory(test::source_file("tests/golden/encoder_decoders"));
}

Json config_of(const std::string& name) {
  return Json::parse_file(test::golden_file(kFolder + name, "config.json"));
}

tensor::NamedTensors reference_of(const std::string& name) {
  return test::read_trusted_safetensors(test::golden_file(kFolder + name, "reference.safetensors"));
}

class EncoderDecoderTest : public testing::TestWithParam<std::string> {};

TEST_P(EncoderDecoderTest, LogitsLossAndEveryGradientMatchTransformers) {
  const auto model = test::load_golden_model(kFolder + GetParam());
  const models::ParityReport report = models::run_parity(*model, reference_of(GetParam()));
  ASSERT_TRUE(report.logits && report.loss && report.gradients);
  EXPECT_LE(report.logits->worst_relative, 5e-6);  // mT5's are ten times T5's
  EXPECT_LE(report.loss->worst_relative, 1e-6);
  EXPECT_LE(report.gradients->worst_relative, 1e-4) << report.gradients->relative_culprit;
  EXPECT_EQ(report.gradients->num_compared, std::ssize(model->key_map()));
}

TEST_P(EncoderDecoderTest, SavesWhatItIs) {
  const Json config = config_of(GetParam());
  const auto model = models::build_causal_lm(config, at::kFloat);
  EXPECT_TRUE(models::reads_sources(config));
  EXPECT_EQ(model->hf_config().at("architectures"), config.at("architectures"));
  EXPECT_EQ(model->initial_values().size(), model->named_parameters().size());
  std::set<std::string> covered;
  for (const tensor::ParameterPart& part : model->key_map()) covered.insert(part.parameter);
  EXPECT_EQ(covered.size(), model->named_parameters().size());
}

/// The steps that a dropout key names draw the same masks, and others other ones.
TEST_P(EncoderDecoderTest, DropsInTrainingByTheStep) {
  const auto model = test::load_golden_model(kFolder + GetParam());
  const tensor::Batch batch = models::parity_batch(reference_of(GetParam()));
  const auto loss_of = [&](int64_t step) {
    model->set_dropout_context({.seed = 3, .step = step});
    return model->loss(batch, 1.0, -100).item<double>();
  };
  model->train();
  const double first = loss_of(0);
  EXPECT_EQ(loss_of(0), first);
  EXPECT_NE(loss_of(1), first);
  model->eval();
  EXPECT_EQ(loss_of(0), loss_of(1));
}

INSTANTIATE_TEST_SUITE_P(Families, EncoderDecoderTest, testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

TEST(EncoderDecoderConfigTest, AHeadIsTheEmbeddingOfTheFirstT5Alone) {
  const auto has_head = [](Json config, const char* key, bool value) {
    config[key] = value;
    const auto model = models::build_causal_lm(config, at::kFloat);
    return model->key_map().back().name == "lm_head.weight";
  };
  EXPECT_FALSE(has_head(config_of("t5"), "scale_decoder_outputs", true));
  EXPECT_TRUE(has_head(config_of("t5_untied"), "scale_decoder_outputs", false));
  // As transformers 5 saves a T5 1.1, and an mT5.
  EXPECT_TRUE(has_head(config_of("t5_untied"), "tie_word_embeddings", true));
  EXPECT_TRUE(has_head(config_of("mt5"), "tie_word_embeddings", true));
  Json released = config_of("t5_untied");
  released.erase("scale_decoder_outputs");
  EXPECT_TRUE(has_head(released, "tie_word_embeddings", false));
  EXPECT_FALSE(has_head(released, "tie_word_embeddings", true));
}

TEST(EncoderDecoderConfigTest, WrongNumbersAreNamed) {
  const auto problem_of = [](const char* key, const Json& value) {
    Json config = config_of("t5");
    config[key] = value;
    return join(models::check_config(config), "; ");
  };
  EXPECT_THAT(problem_of("feed_forward_proj", "gated-sine"),
              testing::HasSubstr("'gated-sine' is neither an activation known here"));
  EXPECT_THAT(problem_of("relative_attention_num_buckets", 6),
              testing::HasSubstr("relative_attention_num_buckets 6 must be a multiple of 4"));
  EXPECT_THAT(problem_of("relative_attention_max_distance", 16),
              testing::HasSubstr("less than twice relative_attention_max_distance 16"));
  EXPECT_THAT(problem_of("is_encoder_decoder", false),
              testing::HasSubstr("T5 without its decoder is not built here"));
  EXPECT_EQ(problem_of("relative_attention_num_buckets", 0),
            "relative_attention_num_buckets is 0; it must be at least 1");
  EXPECT_EQ(problem_of("num_decoder_layers", 20000),
            "num_decoder_layers is 20000; at most 10000 is right");
  EXPECT_EQ(problem_of("model_type", "umt5"),
            "model_type 'umt5' is not that of a T5: t5 and mt5 are built");
  EXPECT_EQ(problem_of("num_decoder_layers", Json()), "");
  EXPECT_THAT(
      test::error_of<UnsupportedError>([] { models::build_causal_lm(config_of("t5"), at::kHalf); }),
      testing::HasSubstr("float16"));
}

/// The biases of a table whose rows are their own numbers, against transformers' rows.
TEST(DistanceBiasTest, HasTheRowsOfTransformers) {
  const Json cases = Json::parse_file(test::source_file("tests/golden/t5_distances.json"));
  ASSERT_EQ(cases.size(), 8U);
  constexpr int64_t kLength = 301;
  for (const Json& each : cases.as_array()) {
    const int64_t num_rows = each.at("num_buckets").as_int();
    const nn::Embedding table({.num_rows = num_rows, .dim = 1}, at::kFloat);
    table.weight().set_data(at::arange(num_rows, at::kFloat).unsqueeze(1));
    const at::Tensor bias = models::t5::distance_bias(
        table, kLength, each.at("is_bidirectional").as_bool(), each.at("max_distance").as_int());
    ASSERT_EQ(bias.size(1), 2 * kLength - 1);
    const at::Tensor rows = bias.detach().flatten();
    const Json::Array& expected = each.at("rows").as_array();
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(rows[static_cast<int64_t>(i)].item<double>(), expected[i].as_double())
          << each.dump().substr(0, 80) << " distance " << static_cast<int64_t>(i) - kLength + 1;
    }
  }
}

}  // namespace
}  // namespace automodel

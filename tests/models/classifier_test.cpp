// Models that classify sequences against what transformers' classes compute
// (scripts/goldens/make_classifier_goldens.py).

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/file.h"
#include "models/catalog.h"
#include "models/flops.h"
#include "models/golden_model.h"
#include "models/parity.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel {
namespace {

constexpr const char* kFolder = "classifiers/";

std::vector<std::string> classifiers() {
  return list_directory(test::source_file("tests/golden/classifiers"));
}

Json classifier_config(const std::string& name) {
  return Json::parse_file(test::golden_file(kFolder + name, "config.json"));
}

class ClassifierTest : public testing::TestWithParam<std::string> {};

TEST_P(ClassifierTest, LogitsLossAndEveryGradientMatchTransformers) {
  const auto model = test::load_golden_model(kFolder + GetParam());
  const auto reference = test::read_trusted_safetensors(
      test::golden_file(kFolder + GetParam(), "reference.safetensors"));
  const models::ParityReport report = models::run_parity(*model, reference);
  ASSERT_TRUE(report.loss && report.gradients);
  if (report.logits) {
    EXPECT_LE(report.logits->worst_absolute, 1e-5);
  }
  EXPECT_LE(report.loss->worst_relative, 1e-6);
  EXPECT_LE(report.gradients->worst_relative, 1e-4) << report.gradients->relative_culprit;
  int64_t num_without = 0;
  for (const tensor::ParameterPart& part : model->key_map()) {
    // All scores of a query share what it adds, which changes no probability.
    if (!part.name.ends_with(".self.key.bias") && !part.name.ends_with(".k_lin.bias")) continue;
    EXPECT_LE(models::hf_gradient(*model, part).abs().max().item<double>(), 1e-7) << part.name;
    ++num_without;
  }
  EXPECT_EQ(report.gradients->num_compared + num_without, std::ssize(model->key_map()));
}

TEST_P(ClassifierTest, SavesWhatItIs) {
  const Json config = classifier_config(GetParam());
  const auto model = models::build_causal_lm(config, at::kFloat);
  EXPECT_TRUE(models::is_classifier(config));
  EXPECT_EQ(model->architecture(), config.at("architectures").as_array()[0].as_string());
  EXPECT_EQ(models::classifier_of(config), model->architecture());
  EXPECT_EQ(model->hf_config().at("architectures"), config.at("architectures"));
  EXPECT_EQ(model->dims().num_labels, 3);
  const std::vector<std::string> head = models::class_head_of(config).modules;
  EXPECT_EQ(model->class_head(), head);
  ASSERT_FALSE(head.empty());
  EXPECT_TRUE(model->key_map().back().name.starts_with(head.back() + ".")) << head.back();
}

INSTANTIATE_TEST_SUITE_P(Families, ClassifierTest, testing::ValuesIn(classifiers()),
                         [](const auto& info) { return info.param; });

TEST(ClassifierConfigTest, CountsClassesAsTransformersDoes) {
  const auto num_labels = [](const char* key, const Json& value) {
    Json config = classifier_config("qwen3_tied");
    config.erase("id2label");
    if (!value.is_null()) config[key] = value;
    return models::build_causal_lm(config, at::kFloat)->dims().num_labels;
  };
  EXPECT_EQ(num_labels("num_labels", Json()), 2);
  EXPECT_EQ(num_labels("num_labels", Json(5)), 5);
  EXPECT_EQ(num_labels("id2label", Json(Json::Object{{"0", "a"}, {"1", "b"}, {"2", "c"}})), 3);
  Json one = classifier_config("qwen3_tied");
  one["id2label"] = Json(Json::Object{{"0", "score"}});
  EXPECT_THROW(models::build_causal_lm(one, at::kFloat), InputError);
}

TEST(ClassifierConfigTest, AHeadOfClassesCountsInPlaceOfALanguageModels) {
  const Json config = classifier_config("gpt_neox");
  Json language = config;
  language["architectures"] = Json(Json::Array{Json("GPTNeoXForCausalLM")});
  language["tie_word_embeddings"] = false;
  const auto vocab_size = static_cast<double>(config.at("vocab_size").as_int());
  const auto hidden = static_cast<double>(config.at("hidden_size").as_int());
  const double fewer = 6 * 7 * hidden * (vocab_size - 3);  // forward and backward of 7 tokens
  EXPECT_DOUBLE_EQ(models::training_flops(language)(1, 7) - models::training_flops(config)(1, 7),
                   fewer);
}

TEST(ClassifierConfigTest, AnEncodersPositionsAreThoseBehindThePadTokens) {
  EXPECT_EQ(models::encoder_positions(classifier_config("bert")), 32);
  EXPECT_EQ(classifier_config("roberta").at("max_position_embeddings").as_int(), 36);
  EXPECT_EQ(models::encoder_positions(classifier_config("roberta")), 32);
  EXPECT_EQ(models::encoder_positions(classifier_config("gpt2")), std::nullopt);
}

/// Texts behind one another in a sequence, with pad tokens inside, have the logits that they have
/// alone.
TEST(ClassifierPacksTest, PadTokensInsideAreCountedAsAlone) {
  const auto model = test::load_golden_model("classifiers/roberta");
  model->eval();
  constexpr int64_t kPad = 3;
  const at::Tensor first = at::tensor(std::vector<int64_t>{7, kPad, 9, 11}).unsqueeze(0);
  const at::Tensor second = at::tensor(std::vector<int64_t>{5, 6, kPad, kPad, 8}).unsqueeze(0);
  const at::NoGradGuard no_grad;
  const auto logits = [&](const tensor::Batch& batch) {
    return model->logits(model->hidden_states(batch));
  };
  tensor::Batch pack;
  pack.input_ids = at::cat({first, second}, 1);
  pack.position_ids = at::cat({at::arange(4, at::kLong), at::arange(5, at::kLong)}).unsqueeze(0);
  pack.document_ids = at::cat({at::zeros({4}, at::kLong), at::ones({5}, at::kLong)}).unsqueeze(0);
  tensor::Batch alone;
  alone.input_ids = first;
  const at::Tensor of_first = logits(alone);
  alone.input_ids = second;
  const at::Tensor expected = at::cat({of_first, logits(alone)}, 1);
  EXPECT_LE((logits(pack) - expected).abs().max().item<double>(), 1e-5);
}

/// So have their means, of which the first token's logits are made, also behind padding.
TEST(ClassifierPacksTest, MeansAreOfATextsOwnTokens) {
  const auto model = test::load_golden_model("classifiers/modernbert_mean");
  model->eval();
  const at::NoGradGuard no_grad;
  const auto text = [](int64_t first, int64_t length) {
    return at::arange(first, first + length, at::kLong).unsqueeze(0);
  };
  const auto logits_at = [&](const tensor::Batch& batch, int64_t token) {
    return model->logits(model->hidden_states(batch)).select(1, token);
  };
  const auto alone = [&](const at::Tensor& ids) {
    tensor::Batch batch;
    batch.input_ids = ids;
    return logits_at(batch, 0);
  };
  const at::Tensor first = text(7, 9);
  const at::Tensor second = text(40, 5);
  const at::Tensor pads = at::full({1, 3}, 3, at::kLong);
  tensor::Batch pack;
  pack.input_ids = at::cat({first, second, pads}, 1);
  pack.position_ids = at::cat({at::arange(9), at::arange(8)}).to(at::kLong).unsqueeze(0);
  pack.document_ids = at::cat({at::zeros({9}), at::ones({8})}).to(at::kLong).unsqueeze(0);
  pack.padding_mask = at::cat({at::zeros({14}), at::ones({3})}).to(at::kBool).unsqueeze(0);
  EXPECT_LE((logits_at(pack, 0) - alone(first)).abs().max().item<double>(), 1e-5);
  EXPECT_LE((logits_at(pack, 9) - alone(second)).abs().max().item<double>(), 1e-5);
  EXPECT_GT((alone(first) - alone(second)).abs().max().item<double>(), 1e-2);
}

/// A folder of an encoder without a head of classes is no model here, but its classifier is.
TEST(ClassifierConfigTest, AnEncoderIsBuiltAsClassifierAlone) {
  Json config = classifier_config("roberta");
  config["architectures"] = Json(Json::Array{Json("RobertaForMaskedLM")});
  EXPECT_EQ(models::classifier_of(config), "RobertaForSequenceClassification");
  EXPECT_FALSE(models::is_classifier(config));
  EXPECT_THAT(test::error_of<InputError>([&] { models::build_causal_lm(config, at::kFloat); }),
              testing::HasSubstr("an encoder: this version trains it to classify texts "));
  EXPECT_FALSE(models::sees_later_tokens(config));
}

TEST(ClassifierConfigTest, AFamilyWithoutSuchAClassHasNone) {
  EXPECT_EQ(models::classifier_of(Json(Json::Object{{"model_type", "granite"}})), "");
  EXPECT_EQ(models::classifier_of(Json(Json::Object{{"model_type", "llama"}})),
            "LlamaForSequenceClassification");
}

}  // namespace
}  // namespace automodel

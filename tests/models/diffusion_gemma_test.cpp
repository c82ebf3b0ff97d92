// DiffusionGemma against what Hugging Face transformers computes
// (tests/golden/diffusion_gemma/SOURCE.md), and its rules by themselves.

#include "models/diffusion_gemma/diffusion_model.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/base/fused.h"
#include "kernels/optimizer/optimizer_step.h"
#include "models/diffusion_gemma/canvas.h"
#include "models/golden_model.h"
#include "models/parity.h"

namespace automodel {
namespace {

using models::BlockDiffusionBatch;
using models::diffusion_gemma::DiffusionGemmaModel;
using testing::ElementsAre;

constexpr const char* kGolden = "diffusion_gemma";

tensor::NamedTensors golden_tensors(const std::string& file) {
  return test::read_trusted_safetensors(test::golden_file(kGolden, file));
}

at::Tensor tensor_named(const tensor::NamedTensors& tensors, const std::string& name) {
  for (const auto& [key, value] : tensors) {
    if (key == name) return value;
  }
  ADD_FAILURE() << name;
  return {};
}

class DiffusionGemmaTest : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    model_ = test::load_golden_model(kGolden);
    model_->eval();
  }

  DiffusionGemmaModel& diffusion() { return dynamic_cast<DiffusionGemmaModel&>(*model_); }

  std::vector<at::Tensor> trained() const {
    std::vector<at::Tensor> found;
    for (const at::Tensor& parameter : model_->parameters()) {
      if (parameter.requires_grad()) found.push_back(parameter);
    }
    return found;
  }

  std::shared_ptr<models::CausalLM> model_;
};

TEST_F(DiffusionGemmaTest, LogitsLossAndEveryGradientMatchTransformers) {
  const tensor::NamedTensors reference = golden_tensors("reference.safetensors");
  const models::ParityReport report = models::run_parity(*model_, reference);
  ASSERT_TRUE(report.logits && report.loss && report.gradients);
  EXPECT_EQ(report.logits->num_compared, 3);  // of the text and of two passes over the canvas
  EXPECT_LE(report.logits->worst_absolute, 1e-4) << report.logits->absolute_culprit;
  EXPECT_LE(report.loss->worst_relative, 1e-5);
  EXPECT_LE(report.gradients->worst_relative, 1e-3) << report.gradients->relative_culprit;
  std::set<std::string> frozen;
  for (const auto& item : model_->named_parameters()) {
    if (!item.value().requires_grad()) frozen.insert(item.key());
  }
  const auto is_trained = [&](const auto& part) { return !frozen.contains(part.parameter); };
  EXPECT_EQ(report.gradients->num_compared, std::ranges::count_if(model_->key_map(), is_trained));
}

/// As a device computes.
TEST_F(DiffusionGemmaTest, ThePlainPathMatchesTransformers) {
  const kernels::PlainPathScope path;
  const models::ParityReport report =
      models::run_parity(*model_, golden_tensors("reference.safetensors"));
  ASSERT_TRUE(report.logits && report.loss && report.gradients);
  EXPECT_LE(report.logits->worst_absolute, 1e-4) << report.logits->absolute_culprit;
  EXPECT_LE(report.loss->worst_relative, 1e-5);
  EXPECT_LE(report.gradients->worst_relative, 1e-3) << report.gradients->relative_culprit;
}

TEST_F(DiffusionGemmaTest, LossesOfThreeAdamWStepsMatchTransformers) {
  const tensor::NamedTensors reference = golden_tensors("reference.safetensors");
  const models::ParityPass pass = models::parity_pass(*model_, reference);
  const at::Tensor losses = tensor_named(reference, "losses");
  std::vector<std::pair<at::Tensor, at::Tensor>> moments;
  for (const at::Tensor& parameter : trained()) {
    moments.emplace_back(at::zeros({parameter.numel()}), at::zeros({parameter.numel()}));
  }
  for (int64_t step = 0; step < losses.numel(); ++step) {
    model_->zero_grad();
    const at::Tensor loss = pass.loss();
    const double expected = losses[step].item<double>();
    EXPECT_LE(std::abs(loss.item<double>() - expected) / expected, 1e-5) << "step " << step;
    loss.backward();
    auto moment = moments.begin();
    for (const at::Tensor& parameter : trained()) {
      const at::Tensor gradient = parameter.grad().contiguous().view(-1);
      kernels::adam_step(parameter.detach().view(-1), gradient, moment->first, moment->second, {},
                         {.lr = 1e-3, .weight_decay = 0.01, .step = step + 1});
      ++moment;
    }
  }
}

TEST_F(DiffusionGemmaTest, ACanvasBehindAPromptMatchesTransformersOwnMasksAndCache) {
  const at::NoGradGuard no_grad;
  const tensor::NamedTensors reference = golden_tensors("inference.safetensors");
  BlockDiffusionBatch batch;
  batch.input_ids = tensor_named(reference, "input_ids");
  batch.canvas_ids = tensor_named(reference, "canvas_ids");
  batch.prefix_lengths = at::full({2}, batch.input_ids.size(1), at::kLong);
  batch.response_lengths = at::full({2}, batch.canvas_ids.size(1), at::kLong);
  batch.block_size = diffusion().config().canvas_length;
  const auto text = diffusion().encode(batch.input_ids, {});
  const at::Tensor first = diffusion().decode(batch, text, {});
  const at::Tensor expected = diffusion().expected_canvas(first, at::ones({2}, at::kBool));
  const at::Tensor second = diffusion().decode(batch, text, expected);
  const auto worst = [&](const at::Tensor& hidden, const char* name) {
    return (model_->logits(hidden) - tensor_named(reference, name)).abs().max().item<double>();
  };
  EXPECT_LE(worst(first, "first_logits"), 1e-4);
  EXPECT_LE(worst(second, "logits"), 1e-4);
}

TEST_F(DiffusionGemmaTest, ABlockNeverSeesItsOwnOrLaterTokensInTheText) {
  const at::NoGradGuard no_grad;
  const tensor::NamedTensors reference = golden_tensors("reference.safetensors");
  BlockDiffusionBatch batch;
  batch.input_ids = tensor_named(reference, "input_ids").clone();
  batch.canvas_ids = tensor_named(reference, "canvas_ids");
  batch.prefix_lengths = tensor_named(reference, "prefix_lengths");
  batch.response_lengths = tensor_named(reference, "response_lengths");
  batch.block_size = 8;
  const auto denoise = [&] {
    return diffusion().decode(batch, diffusion().encode(batch.input_ids, {}), {});
  };
  const at::Tensor before = denoise();
  batch.input_ids[0][11] = 5;  // the first token of the first row's response
  const at::Tensor after = denoise();
  EXPECT_TRUE(at::equal(after[0].narrow(0, 0, 8), before[0].narrow(0, 0, 8)));
  EXPECT_FALSE(at::allclose(after[0].narrow(0, 8, 6), before[0].narrow(0, 8, 6)));
}

TEST_F(DiffusionGemmaTest, RowsThatAreNotConditionedAreAsWithoutAFirstPass) {
  const at::NoGradGuard no_grad;
  const tensor::NamedTensors reference = golden_tensors("reference.safetensors");
  const at::Tensor hidden = at::randn({2, 3, 32});
  const at::Tensor none = diffusion().expected_canvas(hidden, at::zeros({2}, at::kBool));
  EXPECT_FALSE(none.defined());
  const at::Tensor second =
      diffusion().expected_canvas(hidden, at::tensor({0, 1}, at::kLong).ne(0));
  EXPECT_EQ(second[0].abs().max().item<double>(), 0.0);
  EXPECT_GT(second[1].abs().max().item<double>(), 0.0);
}

TEST_F(DiffusionGemmaTest, ScoresThatAreNotFiniteNameTheLayer) {
  model_->named_parameters()["model.layers.2.moe.router.proj.weight"].detach().fill_(NAN);
  const tensor::NamedTensors reference = golden_tensors("reference.safetensors");
  try {
    diffusion().encode(tensor_named(reference, "input_ids"), {});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kNonFinite);
    EXPECT_STREQ(error.what(),
                 "the router of layer 2 computed scores that are not finite: the hidden states or "
                 "the router's weights have diverged");
  }
}

TEST_F(DiffusionGemmaTest, PaddingChangesNoTokenWhetherItsExpertsAreComputedOrNot) {
  const at::NoGradGuard no_grad;
  const tensor::NamedTensors reference = golden_tensors("reference.safetensors");
  const at::Tensor ids = tensor_named(reference, "input_ids");
  const at::Tensor padding = tensor_named(reference, "attention_mask").eq(0);
  const at::Tensor in_evaluation = diffusion().encode(ids, padding).hidden;
  model_->train();  // padding then chooses no experts
  const at::Tensor in_training = diffusion().encode(ids, padding).hidden;
  const at::Tensor off = (in_training - in_evaluation).abs().amax(-1);
  EXPECT_EQ(off.masked_select(padding.logical_not()).max().item<float>(), 0.0F);
  EXPECT_GT(off.masked_select(padding).max().item<float>(), 0.0F);
}

TEST_F(DiffusionGemmaTest, KeyMapCoversEveryRowOfEveryParameterInOrder) {
  auto part = model_->key_map().begin();
  for (const auto& item : model_->named_parameters()) {
    int64_t covered = 0;
    while (part != model_->key_map().end() && part->parameter == item.key()) {
      const int64_t numel = tensor::ShardSpec::whole(part->shape).global_numel();
      EXPECT_EQ(part->row_begin * (numel / part->shape[0]), covered) << part->name;
      covered += numel;
      ++part;
    }
    EXPECT_EQ(covered, item.value().numel()) << item.key();
  }
  EXPECT_EQ(part, model_->key_map().end());
}

TEST(DiffusionGemmaConfig, RoutersAreFrozenUnlessTheRecipeSaysOtherwise) {
  Json config = Json::parse_file(test::golden_file(kGolden, "config.json"));
  config.erase("freeze_router");
  const auto model = models::build_causal_lm(config, at::kFloat);
  std::set<std::string> frozen;
  for (const auto& item : model->named_parameters()) {
    const bool is_first = item.key().starts_with("model.layers.0.");
    if (is_first && !item.value().requires_grad()) frozen.insert(item.key().substr(15));
  }
  EXPECT_THAT(frozen,
              ElementsAre("encoder_layer_scalar", "layer_scalar", "moe.router.per_expert_scale",
                          "moe.router.proj.weight", "moe.router.scale"));
}

TEST(DiffusionGemmaConfig, WhatTransformersDoesNotKnowIsNotExported) {
  Json config = Json::parse_file(test::golden_file(kGolden, "config.json"));
  config["self_conditioning"] = false;
  const Json saved = models::build_causal_lm(config, at::kBFloat16)->hf_config();
  EXPECT_FALSE(saved.contains("freeze_router"));
  EXPECT_FALSE(saved.contains("self_conditioning"));
  EXPECT_EQ(saved.at("dtype").as_string(), "bfloat16");
  EXPECT_TRUE(saved.contains("vision_config"));
}

/// The golden model's sizes in the form of the hub's older files.
Json flat_config() {
  Json config = Json::parse_file(test::golden_file(kGolden, "config.json"));
  Json text = config.at("text_config");
  text.erase("per_layer_config");
  text["global_head_dim"] = 16;
  text["num_global_key_value_heads"] = 1;
  config["text_config"] = text;
  return config;
}

TEST(DiffusionGemmaConfig, BothFormsOfHeadSizesGiveTheSameModel) {
  const auto flat = models::build_causal_lm(flat_config(), at::kFloat);
  const auto listed = models::build_causal_lm(
      Json::parse_file(test::golden_file(kGolden, "config.json")), at::kFloat);
  ASSERT_EQ(flat->key_map().size(), listed->key_map().size());
  for (size_t i = 0; i < flat->key_map().size(); ++i) {
    EXPECT_EQ(flat->key_map()[i].name, listed->key_map()[i].name);
    EXPECT_EQ(flat->key_map()[i].shape, listed->key_map()[i].shape) << flat->key_map()[i].name;
  }
}

struct WrongDiffusionConfig {
  const char* key;  ///< of text_config
  const char* value;
  const char* finding;
};

TEST(DiffusionGemmaConfig, WrongValuesAreFindings) {
  const WrongDiffusionConfig cases[] = {
      {"attention_dropout", "0.1",
       "text_config.attention_dropout above 0 is not built for DiffusionGemma"},
      {"use_bidirectional_attention", "\"all\"",
       "text_config.use_bidirectional_attention must be null or \"vision\": text is read causally"},
      {"num_global_key_value_heads", "3",
       "text_config.num_key_value_heads 3 of layer 1 does not divide num_attention_heads 4"},
      {"top_k_experts", "5", "text_config.top_k_experts 5 is more than num_experts 4"},
      {"per_layer_config", "{\"1\": {\"head_dim\": 8}, \"3\": {\"head_dim\": 16}}",
       "text_config.per_layer_config gives full layers head_dim 8 and 16; layers of one kind have "
       "one rotary embedding"},
      {"per_layer_config", "{\"1\": 7}",
       "text_config.per_layer_config.1 must be an object, not an integer"},
  };
  for (const WrongDiffusionConfig& wrong : cases) {
    Json config = flat_config();
    Json text = config.at("text_config");
    text[wrong.key] = Json::parse(wrong.value, "test");
    config["text_config"] = text;
    EXPECT_THAT(models::check_config(config), testing::Contains(wrong.finding)) << wrong.key;
  }
  EXPECT_THAT(models::check_config(flat_config()), testing::IsEmpty());
}

TEST(DiffusionGemmaConfig, AMissingTextPartIsAFinding) {
  Json config = flat_config();
  config.erase("text_config");
  EXPECT_THAT(
      models::check_config(config),
      testing::Contains("text_config is missing: the sizes of DiffusionGemma's text model"));
}

TEST(DiffusionGemmaConfig, TheShippedSizesHave26BillionParameters) {
  const Json config =
      Json::parse_file(test::source_file("configs/diffusiongemma-26b-a4b/config.json"));
  EXPECT_THAT(models::check_config(config), testing::IsEmpty());
  const auto model = models::build_causal_lm(config, at::kBFloat16);
  int64_t count = 0;
  for (const at::Tensor& parameter : model->parameters()) count += parameter.numel();
  EXPECT_NEAR(static_cast<double>(count), 25.2e9, 0.2e9);
  const auto& layers = dynamic_cast<DiffusionGemmaModel&>(*model).config().layers;
  for (size_t i = 0; i < layers.size(); ++i) EXPECT_EQ(layers[i].is_sliding, i % 6 != 5) << i;
}

std::vector<int64_t> run_at(const at::Tensor& runs, int64_t row, int64_t token) {
  return {runs[row][token][0].item<int64_t>(), runs[row][token][1].item<int64_t>()};
}

TEST(CanvasVisibility, ABlockSeesThePromptTheBlocksBeforeItAndItself) {
  BlockDiffusionBatch batch;
  batch.input_ids = at::zeros({1, 20}, at::kLong);
  batch.canvas_ids = at::zeros({1, 9}, at::kLong);
  batch.prefix_lengths = at::tensor({6}, at::kLong);
  batch.response_lengths = at::tensor({7}, at::kLong);
  batch.block_size = 4;
  const auto visible = models::diffusion_gemma::canvas_visibility(batch, 5);
  EXPECT_THAT(run_at(visible.text, 0, 3), ElementsAre(0, 6));
  EXPECT_THAT(run_at(visible.sliding_text, 0, 3), ElementsAre(2, 6));
  EXPECT_THAT(run_at(visible.canvas, 0, 3), ElementsAre(0, 4));
  EXPECT_THAT(run_at(visible.text, 0, 4), ElementsAre(0, 10));
  EXPECT_THAT(run_at(visible.sliding_text, 0, 6), ElementsAre(6, 10));
  EXPECT_THAT(run_at(visible.canvas, 0, 4), ElementsAre(4, 7));
  EXPECT_THAT(run_at(visible.text, 0, 7), ElementsAre(0, 0));  // behind the response
  EXPECT_THAT(run_at(visible.canvas, 0, 8), ElementsAre(8, 9));
}

}  // namespace
}  // namespace automodel

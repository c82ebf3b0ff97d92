// Multi-token prediction against NeMo AutoModel's own modules
// (scripts/goldens/make_next_token_goldens.py).
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "models/catalog.h"
#include "models/decoder/next_tokens.h"
#include "models/flops.h"
#include "models/golden_model.h"
#include "models/parity.h"

namespace automodel::models {
namespace {

using testing::ElementsAre;

constexpr int64_t kIgnored = -100;

std::vector<std::pair<std::string, Json>> recipe_changes(const std::string& golden) {
  const Json recipe = Json::parse_file(test::golden_file(golden, "recipe.json"));
  return {recipe.as_object().begin(), recipe.as_object().end()};
}

std::shared_ptr<CausalLM> load(const std::string& golden) {
  return test::load_golden_model(golden, recipe_changes(golden));
}

tensor::NamedTensors training_of(const std::string& golden) {
  return test::read_trusted_safetensors(test::golden_file(golden, "training.safetensors"));
}

tensor::Batch batch_of(const tensor::NamedTensors& reference) {
  tensor::Batch batch = parity_batch(reference);
  if (const at::Tensor* documents = tensor::find_tensor(reference, "document_ids")) {
    batch.document_ids = *documents;
  }
  return batch;
}

double distance(const at::Tensor& ours, const at::Tensor& theirs) {
  const at::Tensor error = ours.to(at::kDouble) - theirs.to(at::kDouble);
  return error.norm().item<double>() / theirs.to(at::kDouble).norm().item<double>();
}

double loss_of(CausalLM& model, const tensor::Batch& batch) {
  return model.loss(batch, num_parity_labels(batch.labels), kIgnored).item<double>();
}

class NextTokensGoldenTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

TEST_P(NextTokensGoldenTest, LossAndEveryGradientAreThoseOfUpstream) {
  const auto model = load(GetParam());
  const auto reference = training_of(GetParam());
  const tensor::Batch batch = batch_of(reference);
  model->train();
  const at::Tensor loss = model->loss(batch, num_parity_labels(batch.labels), kIgnored);
  EXPECT_LE(distance(loss.detach(), reference_tensor(reference, "loss")), 2e-6);
  loss.backward();
  const auto parameters = model->named_parameters();
  int64_t num_trained = 0;
  for (const tensor::ParameterPart& part : model->key_map()) {
    if (!parameters[part.parameter].requires_grad()) continue;
    const double error =
        distance(hf_gradient(*model, part), reference_tensor(reference, cat("grad.", part.name)));
    EXPECT_LE(error, 2e-6) << part.name;
    num_trained += 1;
  }
  EXPECT_GT(num_trained, 30);
}

TEST_P(NextTokensGoldenTest, EvaluationLeavesThemOut) {
  const auto model = load(GetParam());
  const auto reference = training_of(GetParam());
  const tensor::Batch batch = batch_of(reference);
  model->eval();
  const at::NoGradGuard no_grad;
  EXPECT_LE(
      distance(model->logits(model->hidden_states(batch)), reference_tensor(reference, "logits")),
      2e-6);
  const auto wanted = reference_tensor(reference, "main_loss").item<double>();
  EXPECT_NEAR(loss_of(*model, batch) / wanted, 1.0, 1e-6);
  // Without the keys there are no such layers, and the numbers are the same to the bit.
  const auto plain = test::load_golden_model(GetParam(), {{"num_nextn_predict_layers", Json(0)}});
  plain->train();
  EXPECT_EQ(plain->loss(batch, 1.0, kIgnored).item<double>(),
            model->loss(batch, 1.0, kIgnored).item<double>());
  EXPECT_THAT(plain->kept_prefixes(), ElementsAre("mtp."));
}

INSTANTIATE_TEST_SUITE_P(Golden, NextTokensGoldenTest,
                         testing::Values("nemotron_h_mtp", "nemotron_h_mtp_repeated"),
                         [](const auto& info) { return std::string(info.param); });

TEST(NextTokensTest, KeyMapCoversEveryParameterInOrder) {
  for (const char* golden : {"nemotron_h_mtp", "nemotron_h_mtp_repeated"}) {
    const auto model = load(golden);
    std::vector<std::string> mapped;
    for (const tensor::ParameterPart& part : model->key_map()) {
      if (mapped.empty() || mapped.back() != part.parameter) mapped.push_back(part.parameter);
    }
    std::vector<std::string> own;
    for (const auto& item : model->named_parameters()) own.push_back(item.key());
    EXPECT_EQ(mapped, own) << golden;
  }
}

TEST(NextTokensTest, LabelsMoveAheadInsideTheirDocument) {
  tensor::Batch batch;
  batch.input_ids = at::arange(6).view({1, 6});
  batch.labels = at::arange(1, 7).view({1, 6});
  const auto ahead = [&](int64_t depth) {
    const at::Tensor labels = decoder::labels_ahead(batch, depth, kIgnored).contiguous();
    return std::vector<int64_t>(labels.data_ptr<int64_t>(), labels.data_ptr<int64_t>() + 6);
  };
  EXPECT_THAT(ahead(0), ElementsAre(2, 3, 4, 5, 6, kIgnored));
  EXPECT_THAT(ahead(2), ElementsAre(4, 5, 6, kIgnored, kIgnored, kIgnored));
  EXPECT_THAT(ahead(7), testing::Each(kIgnored));
  batch.document_ids = at::tensor({0, 0, 0, 1, 1, 1}).view({1, 6});
  EXPECT_THAT(ahead(0), ElementsAre(2, 3, kIgnored, 5, 6, kIgnored));
  EXPECT_THAT(ahead(1), ElementsAre(3, kIgnored, kIgnored, 6, kIgnored, kIgnored));
}

/// The golden with layers of every kind, whose weights are drawn.
std::shared_ptr<CausalLM> with_mamba(const Json& types) {
  Json config = Json::parse_file(test::golden_file("nemotron_h_moe", "config.json"));
  config["num_nextn_predict_layers"] = 2;
  config["mtp_layers_block_type"] = types;
  auto model = build_causal_lm(config, at::kFloat);
  test::give_memory(*model);
  int64_t seed = 0;
  for (const auto& item : model->named_parameters()) {
    if (!item.value().is_floating_point()) continue;
    const at::Tensor values = at::arange(item.value().numel()) * 0.37 + static_cast<double>(++seed);
    item.value().detach().copy_((values.sin() * 0.3).view(item.value().sizes()));
  }
  model->train();
  return model;
}

TEST(NextTokensTest, PackedDocumentsLoseWhatTheyLoseAlone) {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  const auto model = with_mamba(Json(Json::Array{Json("mamba"), Json("attention"), Json("moe")}));
  tensor::Batch packed;
  packed.input_ids = at::remainder(at::arange(19).pow(2) * 7 + 3, 90).view({1, 19});
  packed.labels = at::remainder(packed.input_ids * 5 + 1, 90);
  const auto part = [&](int64_t first, int64_t count) {
    tensor::Batch alone;
    alone.input_ids = packed.input_ids.narrow(1, first, count);
    alone.labels = packed.labels.narrow(1, first, count);
    return model->loss(alone, 10.0, kIgnored).item<double>();
  };
  const double apart = part(0, 8) + part(8, 11);
  const double crossing = model->loss(packed, 10.0, kIgnored).item<double>();
  packed.document_ids =
      at::cat({at::zeros({8}, at::kLong), at::ones({11}, at::kLong)}).view({1, 19});
  packed.position_ids = at::cat({at::arange(8), at::arange(11)}).view({1, 19});
  EXPECT_NEAR(model->loss(packed, 10.0, kIgnored).item<double>() / apart, 1.0, 2e-6);
  EXPECT_GT(std::abs(crossing / apart - 1), 1e-3);
}

TEST(NextTokensTest, PlanHasTheLayersAndWhatCannotBeSplit) {
  const nn::ParallelPlan plan = load("nemotron_h_mtp")->parallel_plan();
  EXPECT_THAT(plan.blocks,
              ElementsAre("model.layers.0", "model.layers.1", "model.layers.2", "mtp.layers.0",
                          "mtp.layers.1", "mtp.layers.2", "mtp.layers.3"));
  EXPECT_THAT(plan.expert_modules,
              ElementsAre("model.layers.1.mlp.experts", "mtp.layers.1.mlp.experts",
                          "mtp.layers.3.mlp.experts"));
  const std::string what = "multi-token prediction (num_nextn_predict_layers) is not ";
  const std::string remedy = "; model.num_nextn_predict_layers: 0 leaves it out";
  EXPECT_THAT(plan.no_tp_reasons, ElementsAre(cat(what, "split", remedy)));
  EXPECT_THAT(plan.no_cp_reasons,
              ElementsAre(cat(what, "in this version with cp_size > 1", remedy)));
  EXPECT_THAT(plan.no_pp_reasons,
              ElementsAre(cat(what, "in this version with pp_size > 1", remedy)));
}

TEST(NextTokensTest, ExportsSayHowManyDepthsHaveWeights) {
  Json config = load("nemotron_h_mtp_repeated")->hf_config();
  EXPECT_EQ(config.at("num_nextn_predict_layers").as_int(), 1);
  EXPECT_FALSE(config.contains("mtp_use_repeated_layer"));
  config = load("nemotron_h_mtp")->hf_config();
  EXPECT_EQ(config.at("num_nextn_predict_layers").as_int(), 2);
  EXPECT_FALSE(config.contains("mtp_loss_scaling_factor"));
}

TEST(NextTokensTest, EveryDepthCountsItsLayersItsFusionAndTheHead) {
  const auto flops = [](std::vector<std::pair<std::string, Json>> changes) {
    Json config = Json::parse_file(test::golden_file("nemotron_h_mtp", "config.json"));
    config["mtp_layers_block_type"] = Json(Json::Array{Json("mlp")});
    for (const auto& [key, value] : changes) config[key] = value;
    return training_flops(config)(2, 10);
  };
  const double plain = flops({{"num_nextn_predict_layers", Json(0)}});
  // 20 tokens: an MLP of 3 x 32 x 48, a fusion of 64 x 32, a head of 32 x 96.
  const double depth = 6.0 * 20 * (3 * 32 * 48 + 64 * 32 + 32 * 96);
  EXPECT_DOUBLE_EQ(flops({}), plain + 2 * depth);
  EXPECT_DOUBLE_EQ(flops({{"mtp_use_repeated_layer", Json(true)}}), plain + 2 * depth);
}

TEST(NextTokensTest, WrongKeysAreFindings) {
  const auto problems = [](std::vector<std::pair<std::string, Json>> changes) {
    Json config = Json::parse_file(test::golden_file("nemotron_h_mtp", "config.json"));
    for (const auto& [key, value] : changes) config[key] = value;
    return check_config(config);
  };
  EXPECT_THAT(problems({}), ElementsAre());
  EXPECT_THAT(problems({{"num_nextn_predict_layers", Json(65)}}),
              ElementsAre("num_nextn_predict_layers is 65; at most 64 is right"));
  EXPECT_THAT(problems({{"mtp_layers_block_type", Json(Json::Array{Json("conv")})}}),
              ElementsAre("mtp_layers_block_type holds \"conv\"; known here: full_attention, "
                          "linear_attention, mlp, moe"));
  EXPECT_THAT(problems({{"mtp_layers_block_type", Json(Json::Array{})}}),
              ElementsAre("mtp_layers_block_type must be a list with an entry for each layer"));
  EXPECT_THAT(problems({{"mtp_hybrid_override_pattern", Json("*-")}}), ElementsAre());
  EXPECT_THAT(problems({{"mtp_layers_block_type", Json(Json::Array{Json("mlp")})},
                        {"mtp_hybrid_override_pattern", Json("*-")}}),
              ElementsAre("mtp_hybrid_override_pattern '*-' and mtp_layers_block_type "
                          "[\"mlp\"] name different layers"));
  EXPECT_THAT(
      problems({{"mtp_layers_block_type", Json()}, {"mtp_hybrid_override_pattern", Json("*X")}}),
      ElementsAre("mtp_hybrid_override_pattern '*X' must be letters of M, *, -, E"));
  EXPECT_THAT(problems({{"mtp_loss_scaling_factor", Json(-0.5)}}),
              ElementsAre("mtp_loss_scaling_factor is -0.5; it must be at least 0"));
}

}  // namespace
}  // namespace automodel::models

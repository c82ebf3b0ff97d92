// Every family against what Hugging Face transformers computes (tests/golden/SOURCE.md).

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/optimizer/optimizer_step.h"
#include "models/golden_families.h"
#include "models/golden_model.h"
#include "models/parity.h"

namespace automodel {
namespace {

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

int64_t num_trained_parts(const models::CausalLM& model) {
  const auto parameters = model.named_parameters();
  // A bias of keys that do not rotate adds one number to all scores of a query, and has no gradient
  // but rounding.
  const bool are_key_biases_left_out = model.architecture() == "OPTForCausalLM";
  return std::ranges::count_if(model.key_map(), [&](const tensor::ParameterPart& part) {
    return parameters[part.parameter].requires_grad() &&
           !(are_key_biases_left_out && part.name.ends_with(".k_proj.bias"));
  });
}

std::vector<at::Tensor> trained_parameters(const models::CausalLM& model) {
  std::vector<at::Tensor> trained;
  for (const at::Tensor& parameter : model.parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  return trained;
}

TEST_P(GoldenTest, LogitsLossAndEveryGradientMatchTransformers) {
  const auto model = test::load_golden_model(GetParam());
  const auto reference =
      test::read_trusted_safetensors(test::golden_file(GetParam(), "reference.safetensors"));
  const models::ParityReport report = models::run_parity(*model, reference);
  ASSERT_TRUE(report.logits && report.loss && report.gradients);
  EXPECT_LE(report.logits->worst_absolute, 1e-4);
  EXPECT_LE(report.loss->worst_relative, 1e-5);
  EXPECT_LE(report.gradients->worst_relative, 1e-3) << report.gradients->relative_culprit;
  EXPECT_EQ(report.gradients->num_compared, num_trained_parts(*model));
}

TEST_P(GoldenTest, LossesOfThreeAdamWStepsMatchTransformers) {
  const auto model = test::load_golden_model(GetParam());
  const auto reference =
      test::read_trusted_safetensors(test::golden_file(GetParam(), "reference.safetensors"));
  const tensor::Batch batch = models::parity_batch(reference);
  const auto num_labels = batch.labels.ne(-100).sum().item<double>();
  at::Tensor losses;
  for (const auto& [name, value] : reference) {
    if (name == "losses") losses = value;
  }
  model->eval();
  std::vector<std::pair<at::Tensor, at::Tensor>> moments;
  for (const at::Tensor& parameter : trained_parameters(*model)) {
    moments.emplace_back(at::zeros({parameter.numel()}), at::zeros({parameter.numel()}));
  }
  for (int64_t step = 0; step < losses.numel(); ++step) {
    model->zero_grad();
    const at::Tensor loss = model->loss(batch, num_labels, -100);
    const double expected = losses[step].item<double>();
    EXPECT_LE(std::abs(loss.item<double>() - expected) / expected, 1e-5) << "step " << step;
    loss.backward();
    auto moment = moments.begin();
    for (const at::Tensor& parameter : trained_parameters(*model)) {
      const at::Tensor gradient = parameter.grad().contiguous().view(-1);
      kernels::adam_step(parameter.detach().view(-1), gradient, moment->first, moment->second, {},
                         {.lr = 1e-3, .weight_decay = 0.01, .step = step + 1});
      ++moment;
    }
  }
}

TEST_P(GoldenTest, KeyMapCoversEveryRowOfEveryParameterInOrder) {
  const auto model = models::build_causal_lm(
      Json::parse_file(test::golden_file(GetParam(), "config.json")), at::kFloat);
  auto part = model->key_map().begin();
  for (const auto& item : model->named_parameters()) {
    int64_t covered = 0;
    while (part != model->key_map().end() && part->parameter == item.key()) {
      const int64_t numel = tensor::ShardSpec::whole(part->shape).global_numel();
      const int64_t rows = part->shape.empty() ? 1 : part->shape[0];
      EXPECT_EQ(part->row_begin * (numel / rows), covered) << part->name;
      covered += numel;
      ++part;
    }
    EXPECT_EQ(covered, item.value().numel()) << item.key();
  }
  EXPECT_EQ(part, model->key_map().end());
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTest, testing::ValuesIn(test::golden_families()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace automodel

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <map>

#include "distributed/recompute/recompute.h"
#include "models/golden_families.h"
#include "models/golden_model.h"
#include "models/parity.h"

namespace automodel::recipes {
namespace {

using Mode = distributed::ActivationCheckpointingMode;

/// Loss and gradients of one training step; the dropout context has moved on before the backward.
struct StepOfModel {
  StepOfModel(const std::string& golden, Mode mode, int64_t step) {
    at::set_num_threads(1);
    const auto model = test::load_golden_model(golden);
    model->train();
    distributed::recompute_blocks(*model, model->parallel_plan(), mode);
    model->set_dropout_context({.seed = 7, .step = step, .micro_batch = 1});
    const at::Tensor result = model->loss(models::parity_batch(test::read_trusted_safetensors(
                                              test::golden_file(golden, "reference.safetensors"))),
                                          10.0, -100);
    model->set_dropout_context({.seed = 7, .step = step + 1, .micro_batch = 0});
    result.backward();
    loss = result.item<double>();
    for (const auto& item : model->named_parameters()) {
      if (item.value().requires_grad()) gradients[item.key()] = item.value().grad();
    }
  }

  double loss = 0;
  std::map<std::string, at::Tensor> gradients;
};

void expect_same_steps(const StepOfModel& found, const StepOfModel& wanted) {
  EXPECT_EQ(found.loss, wanted.loss);
  ASSERT_EQ(found.gradients.size(), wanted.gradients.size());
  for (const auto& [name, gradient] : wanted.gradients) {
    EXPECT_TRUE(at::equal(found.gradients.at(name), gradient)) << name;
  }
}

class RecomputeModelsTest : public testing::TestWithParam<std::string> {};

TEST_P(RecomputeModelsTest, LossAndGradientsAreThoseOfPlainTrainingToTheBit) {
  const StepOfModel plain(GetParam(), Mode::kOff, 3);
  expect_same_steps(StepOfModel(GetParam(), Mode::kFull, 3), plain);
  expect_same_steps(StepOfModel(GetParam(), Mode::kSelective, 3), plain);
}

INSTANTIATE_TEST_SUITE_P(Golden, RecomputeModelsTest, testing::ValuesIn(test::golden_families()),
                         [](const auto& info) { return info.param; });

TEST(RecomputeDropoutTest, MasksOfTheForwardAreThoseOfItsRecomputation) {
  const StepOfModel plain("gpt2", Mode::kOff, 3);
  const StepOfModel other_masks("gpt2", Mode::kOff, 4);
  EXPECT_NE(plain.loss, other_masks.loss);  // dropout is on
  for (const Mode mode : {Mode::kFull, Mode::kSelective}) {
    expect_same_steps(StepOfModel("gpt2", mode, 3), plain);
  }
}

}  // namespace
}  // namespace automodel::recipes

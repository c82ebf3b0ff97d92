// Quantization-aware training against torchao's quantizers on transformers' Qwen2
// (scripts/goldens/make_qat_goldens.py).

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "models/golden_model.h"
#include "models/parity.h"
#include "nn/fake_quantizer.h"

namespace automodel {
namespace {

nn::FakeQuantizer::Options options_of(bool rounds_inputs) {
  return {.format = {.weights = {.size = 32, .is_symmetric = rounds_inputs},
                     .rounds_inputs = rounds_inputs},
          .takes_biases = rounds_inputs};
}

tensor::NamedTensors qat_reference(bool rounds_inputs) {
  return test::read_trusted_safetensors(
      test::golden_file("qat", rounds_inputs ? "int8_dynact_int4weight.safetensors"
                                             : "int4_weight_only.safetensors"));
}

class QatModelTest : public testing::TestWithParam<bool> {};

TEST_P(QatModelTest, LogitsLossAndEveryGradientMatchTorchao) {
  const auto model = test::load_golden_model("qat");
  model->set_fake_quantizer(std::make_shared<nn::FakeQuantizer>(options_of(GetParam())));
  const models::ParityReport report = models::run_parity(*model, qat_reference(GetParam()));
  ASSERT_TRUE(report.logits && report.loss && report.gradients);
  EXPECT_LE(report.logits->worst_absolute, 2e-5);
  EXPECT_LE(report.loss->worst_relative, 1e-6);
  EXPECT_LE(report.gradients->worst_relative, 1e-4) << report.gradients->relative_culprit;
  EXPECT_EQ(report.gradients->num_compared, std::ssize(model->key_map()));
}

INSTANTIATE_TEST_SUITE_P(Quantizers, QatModelTest, testing::Bool(), [](const auto& info) {
  return info.param ? "int8_dynact_int4weight" : "int4_weight_only";
});

TEST(QatModelTest, RoundsFromItsFirstStepOn) {
  const auto plain = test::load_golden_model("qat");
  const auto model = test::load_golden_model("qat");
  nn::FakeQuantizer::Options options = options_of(true);
  options.first_step = 3;
  model->set_fake_quantizer(std::make_shared<nn::FakeQuantizer>(options));
  const tensor::Batch batch = models::parity_batch(qat_reference(true));
  const double expected = plain->loss(batch, 1.0, -100).item<double>();
  EXPECT_EQ(model->loss(batch, 1.0, -100).item<double>(), expected);
  model->fake_quantizer()->begin_step(2);
  EXPECT_EQ(model->loss(batch, 1.0, -100).item<double>(), expected);
  model->fake_quantizer()->begin_step(3);
  EXPECT_NE(model->loss(batch, 1.0, -100).item<double>(), expected);
}

}  // namespace
}  // namespace automodel

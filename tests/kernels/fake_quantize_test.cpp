// Against torchao: tests/kernels/data/fake_quantize.safetensors, which
// scripts/goldens/make_qat_goldens.py makes.
#include "kernels/products/fake_quantize.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "kernels/base/fused.h"
#include "kernels/products/linear.h"
#include "support/temporary_directory.h"
#include "tensor/dtype.h"

namespace automodel::kernels {
namespace {

constexpr const char* kFloats[] = {"float32", "bfloat16", "float16"};
constexpr const char* kScales[] = {"float32", "bfloat16"};

struct RoundingCase {
  std::string name;  // of the golden's tensors
  at::ScalarType dtype;
  FakeQuantization format;
};

std::vector<RoundingCase> rounding_cases() {
  std::vector<RoundingCase> cases;
  for (const bool rounds_inputs : {true, false}) {
    for (const char* dtype : kFloats) {
      for (const char* scales : kScales) {
        const at::ScalarType scale_dtype = tensor::parse_dtype(scales).value();
        if (!rounds_inputs && scale_dtype != at::kBFloat16) continue;
        cases.push_back({cat(rounds_inputs ? "int8_dynact_int4weight." : "int4_weight_only.", dtype,
                             ".", scales, "."),
                         tensor::parse_dtype(dtype).value(),
                         {{32, rounds_inputs, scale_dtype}, rounds_inputs}});
      }
    }
  }
  return cases;
}

checkpoint::SafetensorsFile rounding_goldens() {
  return checkpoint::SafetensorsFile(
      test::source_file("tests/kernels/data/fake_quantize.safetensors"));
}

/// The result of `round` and the gradient of its sum.
template <typename Round>
std::pair<at::Tensor, at::Tensor> with_gradient(const at::Tensor& values, const Round& round) {
  const at::Tensor leaf = values.detach().clone().requires_grad_();
  const at::Tensor result = round(leaf);
  result.sum().backward();
  return {result.detach(), leaf.grad()};
}

/// Zeros are zeros; other gradients are torchao's to two roundings of their dtype.
void expect_close_gradients(const at::Tensor& ours, const at::Tensor& theirs) {
  const double tolerance = theirs.scalar_type() == at::kFloat      ? 4e-7
                           : theirs.scalar_type() == at::kBFloat16 ? 1.6e-2
                                                                   : 2e-3;
  EXPECT_TRUE(at::allclose(ours, theirs, tolerance, 0));
}

void expect_numbers_of_torchao() {
  const auto golden = rounding_goldens();
  for (const RoundingCase& each : rounding_cases()) {
    SCOPED_TRACE(each.name);
    const auto [weight, weight_gradient] = with_gradient(
        golden.read(each.name + "weight"),
        [&](const at::Tensor& values) { return rounded_weight(values, each.format.weights); });
    EXPECT_TRUE(at::equal(weight, golden.read(each.name + "rounded_weight")));
    expect_close_gradients(weight_gradient, golden.read(each.name + "weight_gradient"));
    EXPECT_EQ(weight.scalar_type(), each.dtype);
    if (!each.format.rounds_inputs) continue;
    const auto [x, x_gradient] = with_gradient(golden.read(each.name + "x"), rounded_tokens);
    EXPECT_TRUE(at::equal(x, golden.read(each.name + "rounded_x")));
    expect_close_gradients(x_gradient, golden.read(each.name + "x_gradient"));
  }
}

TEST(FakeQuantizeTest, ValuesAndGradientsAreThoseOfTorchao) {
  expect_numbers_of_torchao();
}

TEST(FakeQuantizeTest, OtherDevicesHaveTheSameNumbers) {
  const PlainPathScope path;
  expect_numbers_of_torchao();
}

/// The layer's product in one piece has the numbers of its parts, forward and backward.
TEST(FakeQuantizeTest, AProductIsThatOfRoundedOperands) {
  const auto golden = rounding_goldens();
  for (const RoundingCase& each : rounding_cases()) {
    if (each.dtype == at::kHalf) continue;  // its products are rounded otherwise
    SCOPED_TRACE(each.name);
    const at::Tensor x_values =
        golden.read(cat("int8_dynact_int4weight.",
                        each.dtype == at::kFloat ? "float32" : "bfloat16", ".float32.x"));
    const auto gradients = [&](const auto& product) {
      const at::Tensor x = x_values.clone().requires_grad_();
      const at::Tensor weight = golden.read(each.name + "weight").clone().requires_grad_();
      const at::Tensor bias = at::linspace(-1, 1, 48).to(each.dtype).requires_grad_();
      const at::Tensor out = product(x, weight, bias);
      (out * out.detach()).sum().backward();
      return std::vector<at::Tensor>{out.detach(), x.grad(), weight.grad(), bias.grad()};
    };
    const auto whole = gradients([&](const auto& x, const auto& weight, const auto& bias) {
      return fake_quantized_linear(x, weight, bias, each.format);
    });
    const auto parts = gradients([&](const auto& x, const auto& weight, const auto& bias) {
      return linear(each.format.rounds_inputs ? rounded_tokens(x) : x,
                    rounded_weight(weight, each.format.weights), bias);
    });
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_TRUE(at::allclose(whole[i], parts[i], 1e-5, 1e-5)) << i;
    }
  }
}

}  // namespace
}  // namespace automodel::kernels

// Against bitsandbytes: tests/kernels/data/four_bit.safetensors, which
// scripts/goldens/make_four_bit_goldens.py makes.
#include "kernels/products/four_bit.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/file.h"
#include "kernels/base/fused.h"
#include "kernels/products/linear.h"
#include "support/temporary_directory.h"

namespace automodel::kernels {
namespace {

struct FourBitCase {
  std::string name;  // of the golden's tensors
  FourBitFormat format;
};

std::vector<FourBitCase> all_cases() {
  std::vector<FourBitCase> cases;
  for (const auto type : {FourBitType::kNf4, FourBitType::kFp4}) {
    for (const bool is_nested : {false, true}) {
      for (const auto dtype : {at::kFloat, at::kBFloat16}) {
        cases.push_back(
            {cat(type == FourBitType::kNf4 ? "nf4" : "fp4", is_nested ? ".nested" : ".plain",
                 dtype == at::kFloat ? ".float32." : ".bfloat16."),
             {type, is_nested, dtype}});
      }
    }
  }
  return cases;
}

checkpoint::SafetensorsFile goldens() {
  return checkpoint::SafetensorsFile(test::source_file("tests/kernels/data/four_bit.safetensors"));
}

int64_t to_border(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

TEST(FourBit, BytesAreThoseOfBitsandbytes) {
  const auto golden = goldens();
  for (const auto& [name, format] : all_cases()) {
    const at::Tensor values = golden.read(name + "values");
    const at::Tensor bytes = quantize_four_bit(values, format);
    const at::Tensor packed = golden.read(name + "packed");
    EXPECT_TRUE(at::equal(bytes.narrow(0, 0, packed.numel()), packed)) << name;
    const at::Tensor factors = golden.read(name + "absmax").view(at::kByte).view({-1});
    int64_t place = to_border(packed.numel());
    EXPECT_TRUE(at::equal(bytes.narrow(0, place, factors.numel()), factors)) << name;
    place += to_border(factors.numel());
    if (format.has_quantized_factors) {
      const at::Tensor outer =
          at::cat({golden.read(name + "nested_absmax"), golden.read(name + "offset")});
      EXPECT_TRUE(at::equal(bytes.narrow(0, place, 4 * outer.numel()), outer.view(at::kByte)))
          << name;
      place += to_border(4 * outer.numel());
    }
    EXPECT_EQ(bytes.numel(), place);
    EXPECT_EQ(four_bit_bytes(values.numel(), format), place);
  }
}

TEST(FourBit, ValuesAreThoseOfBitsandbytes) {
  const auto golden = goldens();
  for (const auto& [name, format] : all_cases()) {
    const at::Tensor values = golden.read(name + "values");
    const FourBitWeight weight{
        quantize_four_bit(values, format), {values.size(0)}, values.size(1), format};
    for (const bool is_plain : {false, true}) {
      const PlainPathScope path(is_plain);
      EXPECT_TRUE(at::equal(weight.values(format.dtype), golden.read(name + "dequantized")))
          << name;
    }
  }
}

TEST(FourBit, MatricesOfOneWeightAreQuantizedOneByOne) {
  const auto golden = goldens();
  const FourBitFormat format{FourBitType::kNf4, true, at::kFloat};
  const at::Tensor values = golden.read("nf4.nested.float32.values");
  const at::Tensor one = quantize_four_bit(values, format);
  const at::Tensor other = quantize_four_bit(values.narrow(0, 0, 100) * 3, format);
  const FourBitWeight weight{at::cat({other, one}), {100, values.size(0)}, 128, format};
  const at::Tensor all = weight.values(at::kFloat);
  EXPECT_EQ(all.sizes(), (std::vector<int64_t>{100 + values.size(0), 128}));
  EXPECT_TRUE(
      at::equal(all.narrow(0, 100, values.size(0)), golden.read("nf4.nested.float32.dequantized")));
}

TEST(FourBit, ALinearLayerIsThatOfTheValues) {
  at::manual_seed(3);
  const auto golden = goldens();
  for (const auto& [name, format] : all_cases()) {
    const at::Tensor floats = golden.read(name + "values");
    const FourBitWeight weight{
        quantize_four_bit(floats, format), {floats.size(0)}, floats.size(1), format};
    const auto options = at::TensorOptions().dtype(format.dtype);
    const at::Tensor bias = at::randn({floats.size(0)}, options);
    const at::Tensor gradient = at::randn({2, 3, floats.size(0)}, options);
    const at::Tensor x = at::randn({2, 3, 128}, options).requires_grad_();
    const at::Tensor y = x.detach().clone().requires_grad_();
    const at::Tensor out = four_bit_linear(x, weight, bias);
    const at::Tensor wanted = linear(y, weight.values(format.dtype), bias);
    EXPECT_TRUE(at::equal(out, wanted)) << name;
    out.backward(gradient);
    wanted.backward(gradient);
    EXPECT_TRUE(at::equal(x.grad(), y.grad())) << name;
  }
}

TEST(FourBit, AWeightTakesFourBitsAndAnEighthOfOne) {
  const int64_t numel = int64_t{4096} * 14336;
  const auto bits = [&](const FourBitFormat& format) {
    return 8.0 * static_cast<double>(four_bit_bytes(numel, format)) / static_cast<double>(numel);
  };
  EXPECT_NEAR(bits({FourBitType::kNf4, true, at::kBFloat16}), 4 + 8.0 / 64 + 32.0 / 64 / 256, 1e-4);
  EXPECT_NEAR(bits({FourBitType::kNf4, false, at::kBFloat16}), 4 + 32.0 / 64, 1e-4);
}

}  // namespace
}  // namespace automodel::kernels

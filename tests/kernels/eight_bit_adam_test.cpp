#include "kernels/base/dynamic_codes.h"
#include "kernels/differentiation.h"
#include "kernels/optimizer/optimizer_step.h"
#include "kernels/optimizer/step_reference.h"

namespace automodel::kernels {
namespace {

/// Many pieces of a thread, and a last block of a remainder of every vector width.
constexpr int64_t kNumel = 100 * 256 * 4 + 39;
constexpr int64_t kNumBlocks = (kNumel + 255) / 256;

EightBitState zeros() {
  return {at::zeros({kNumel}, at::kByte), at::zeros({kNumBlocks})};
}

/// {parameter, codes and absmax of both averages}.
struct Stepped {
  at::Tensor parameter;
  EightBitState m = zeros(), v = zeros();

  Stepped copy() const {
    return {parameter.clone(),
            {m.codes.clone(), m.absmax.clone()},
            {v.codes.clone(), v.absmax.clone()}};
  }
};

/// Codes differ by one where the last bit of an average decides, which are few.
void expect_codes(const EightBitState& found, const EightBitState& wanted) {
  const at::Tensor apart = (found.codes.to(at::kInt) - wanted.codes.to(at::kInt)).abs();
  EXPECT_LE(apart.max().item<int64_t>(), 1);
  EXPECT_LE(apart.sum().item<int64_t>(), kNumel / 10'000);
  EXPECT_TRUE(at::allclose(found.absmax, wanted.absmax, 1e-6, 0));
}

class EightBitAdam : public testing::TestWithParam<std::tuple<at::ScalarType, at::ScalarType>> {};

/// Each step begins with what the plain path has left, so that a code that differs is not carried
/// on.
TEST_P(EightBitAdam, MatchesThePlainPath) {
  const auto [dtype, gradient_dtype] = GetParam();
  at::set_num_threads(1);
  Numbers numbers(21);
  Stepped plain{numbers.normal({kNumel}).to(dtype)};
  for (int64_t t = 1; t <= 3; ++t) {
    const AdamOptions options{.lr = 0.01, .weight_decay = 0.1, .step = t, .grad_scale = 0.37};
    const at::Tensor gradient =
        (numbers.normal({kNumel}) * numbers.normal({kNumel}).square()).to(gradient_dtype);
    Stepped fused = plain.copy();
    adam_eight_bit_step(fused.parameter, gradient, fused.m, fused.v, options);
    adam_eight_bit_step_reference(plain.parameter, gradient, plain.m, plain.v, options);
    // Arithmetic in float32 on both paths; a rounding of bfloat16 is 4e-3 of a number.
    EXPECT_LE(relative_error(fused.parameter, plain.parameter), dtype == at::kFloat ? 1e-6 : 1e-4);
    expect_codes(fused.m, plain.m);
    expect_codes(fused.v, plain.v);
    EXPECT_GT(plain.m.absmax.min().item<float>(), 0.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, EightBitAdam,
                         testing::Combine(testing::ValuesIn(kFusedTypes),
                                          testing::ValuesIn(kFusedTypes)));

/// With a beta1 of 0 the average is the gradient itself, of which all neighbours of the borders
/// between two codes are tried.
TEST(EightBitAdamCodes, AreTheNearestOnes) {
  const at::Tensor codes = dynamic_codes(/*is_signed=*/true);
  const at::Tensor borders = (codes.narrow(0, 0, 255) + codes.narrow(0, 1, 255)) / 2;
  const at::Tensor bits = borders.view(at::kInt);
  for (const int64_t offset : {-2, -1, 0, 1, 2}) {
    at::Tensor gradient = at::ones({256});  // the last one makes absmax 1
    gradient.narrow(0, 0, 255).copy_((bits + offset).view(at::kFloat));
    const at::Tensor wanted = at::bucketize(gradient, borders).to(at::kByte);
    EightBitState m{at::zeros({256}, at::kByte), at::zeros({1})}, v = m;
    v.codes = at::zeros({256}, at::kByte);
    v.absmax = at::zeros({1});
    adam_eight_bit_step(at::zeros({256}), gradient, m, v, {.beta1 = 0});
    EXPECT_EQ(m.absmax.item<float>(), 1.0f);
    EXPECT_TRUE(at::equal(m.codes, wanted)) << offset;
  }
}

TEST(EightBitAdamCodes, HaveTheSameBitsOnTwoThreads) {
  Numbers numbers(22);
  const at::Tensor start = numbers.normal({kNumel}), gradient = numbers.normal({kNumel});
  const auto after_step = [&](int num_threads) {
    at::set_num_threads(num_threads);
    Stepped stepped{start.clone()};
    adam_eight_bit_step(stepped.parameter, gradient, stepped.m, stepped.v, {.weight_decay = 0.1});
    at::set_num_threads(1);
    return stepped;
  };
  const Stepped one = after_step(1), two = after_step(2);
  EXPECT_TRUE(at::equal(one.parameter, two.parameter));
  EXPECT_TRUE(at::equal(one.m.codes, two.m.codes) && at::equal(one.m.absmax, two.m.absmax));
  EXPECT_TRUE(at::equal(one.v.codes, two.v.codes) && at::equal(one.v.absmax, two.v.absmax));
}

/// A factor is shared, so a number that is not finite reaches its block, and no other one.
TEST(EightBitAdamCodes, HideNeitherNaNNorInf) {
  for (const bool is_plain : {false, true}) {
    const PlainPathScope path(is_plain);
    for (const double poison : kPoisons) {
      SCOPED_TRACE(poison);
      at::Tensor gradient = at::ones({kNumel});
      gradient[300] = poison;
      Stepped stepped{at::ones({kNumel})};
      adam_eight_bit_step(stepped.parameter, gradient, stepped.m, stepped.v, {});
      EXPECT_FALSE(is_finite(stepped.parameter[300]));
      EXPECT_TRUE(is_finite(stepped.parameter[299]) && is_finite(stepped.parameter[301]));
      EXPECT_FALSE(is_finite(stepped.m.absmax[1]) || is_finite(stepped.v.absmax[1]));
      EXPECT_TRUE(is_finite(stepped.m.absmax[0]) && is_finite(stepped.m.absmax[2]));
    }
  }
}

}  // namespace
}  // namespace automodel::kernels

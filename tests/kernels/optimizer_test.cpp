#include "kernels/optimizer/optimizer_step.h"

#include <cmath>

#include "kernels/differentiation.h"
#include "kernels/optimizer/step_reference.h"

namespace automodel::kernels {
namespace {

using Path = void (*)(at::Tensor, const at::Tensor&, at::Tensor, at::Tensor, at::Tensor,
                      const AdamOptions&);

/// More than one block of elements, and a remainder of every vector width.
constexpr int64_t kNumel = 40007;
constexpr int64_t kNumSteps = 3;

/// {parameter, exp_avg, exp_avg_sq, max_exp_avg_sq where amsgrad} after three steps; the gradients
/// of step t shrink, so that amsgrad's maximum is an old one.
Tensors step(Path path, AdamOptions options, bool is_amsgrad, at::ScalarType dtype) {
  Numbers numbers(11);
  Tensors state = {numbers.normal({kNumel}).to(dtype), at::zeros({kNumel}, dtype),
                   at::zeros({kNumel}, dtype)};
  if (is_amsgrad) state.push_back(at::zeros({kNumel}, dtype));
  for (int64_t t = 1; t <= kNumSteps; ++t) {
    options.step = t;
    // A power of two: the same numbers in both precisions.
    const at::Tensor gradient = (numbers.normal({kNumel}) * std::ldexp(1.0, -6 * t)).to(dtype);
    path(state[0], gradient, state[1], state[2], is_amsgrad ? state[3] : at::Tensor(), options);
  }
  return state;
}

void expect_match(const AdamOptions& options, bool is_amsgrad = false) {
  at::set_num_threads(1);
  expect_as_close(step(adam_step, options, is_amsgrad, at::kFloat),
                  step(adam_step_reference, options, is_amsgrad, at::kFloat),
                  step(adam_step_reference, options, is_amsgrad, at::kDouble));
  // Arithmetic in float32 on both paths, rounded at the same places. Sums of a few tenths of
  // numbers of eight bits often lie halfway, where the last bit of float32 decides; a rounding is
  // 4e-3.
  const Tensors found = step(adam_step, options, is_amsgrad, at::kBFloat16);
  const Tensors wanted = step(adam_step_reference, options, is_amsgrad, at::kBFloat16);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(found[i].scalar_type(), at::kBFloat16);
    EXPECT_LE(relative_error(found[i], wanted[i]), 1e-3) << "tensor " << i;
  }
}

TEST(AdamStep, MatchesThePlainPath) {
  expect_match({});
}

TEST(AdamStep, MatchesThePlainPathWithDecoupledDecay) {
  expect_match({.lr = 0.01, .weight_decay = 0.1});
}

TEST(AdamStep, MatchesThePlainPathWithL2) {
  expect_match({.lr = 0.01, .weight_decay = 0.1, .is_decoupled = false});
}

TEST(AdamStep, MatchesThePlainPathWithAmsgrad) {
  expect_match({.lr = 0.01, .weight_decay = 0.1}, true);
  expect_match({.lr = 0.01, .weight_decay = 0.1, .is_decoupled = false}, true);
}

TEST(AdamStep, MatchesThePlainPathWithClippingAndOtherBetas) {
  expect_match({.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-5, .grad_scale = 0.37});
  expect_match({.beta1 = 0.0, .beta2 = 0.9999});
}

/// Each of parameters, gradients and states may be kept in either.
TEST(AdamStep, MatchesThePlainPathOfMixedDtypes) {
  for (int mix = 0; mix < 8; ++mix) {
    SCOPED_TRACE(mix);
    const auto dtype_of = [&](int bit) {
      return (mix >> bit & 1) != 0 ? at::kBFloat16 : at::kFloat;
    };
    const auto after_step = [&](Path path) {
      Numbers numbers(14);
      const at::Tensor gradient = numbers.normal({kNumel}).to(dtype_of(1));
      Tensors state = {numbers.normal({kNumel}).to(dtype_of(0)),
                       numbers.normal({kNumel}).to(dtype_of(2)),
                       numbers.normal({kNumel}).square().to(dtype_of(2)),
                       numbers.normal({kNumel}).square().to(dtype_of(2))};
      path(state[0], gradient, state[1], state[2], state[3], {.lr = 0.01, .weight_decay = 0.1});
      path(state[0], gradient, state[1], state[2], at::Tensor(), {.lr = 0.01, .step = 2});
      return state;
    };
    const Tensors found = after_step(adam_step), wanted = after_step(adam_step_reference);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(found[i].scalar_type(), wanted[i].scalar_type());
      EXPECT_LE(relative_error(found[i], wanted[i]), 1e-3) << "tensor " << i;
    }
  }
}

TEST(AdamStep, HasTheSameBitsOnTwoThreads) {
  for (const at::ScalarType dtype : kFusedTypes) {
    for (const bool is_amsgrad : {false, true}) {
      at::set_num_threads(1);
      const Tensors on_one = step(adam_step, {.weight_decay = 0.1}, is_amsgrad, dtype);
      at::set_num_threads(2);
      const Tensors on_two = step(adam_step, {.weight_decay = 0.1}, is_amsgrad, dtype);
      at::set_num_threads(1);
      for (size_t i = 0; i < on_one.size(); ++i) EXPECT_TRUE(at::equal(on_one[i], on_two[i])) << i;
    }
  }
}

TEST(AdamStep, HidesNeitherNaNNorInf) {
  for (const auto& [is_amsgrad, dtype] :
       {std::pair(false, at::kFloat), std::pair(true, at::kFloat), std::pair(false, at::kBFloat16),
        std::pair(true, at::kBFloat16)}) {
    for (const double poison : kPoisons) {
      SCOPED_TRACE(testing::Message() << poison << (is_amsgrad ? " amsgrad " : " ") << dtype);
      at::Tensor gradient = at::ones({40}, dtype);
      gradient[17] = poison;
      Tensors state = {at::ones({40}, dtype), at::zeros({40}, dtype), at::zeros({40}, dtype),
                       at::zeros({40}, dtype)};
      adam_step(state[0], gradient, state[1], state[2], is_amsgrad ? state[3] : at::Tensor(), {});
      for (size_t i = 0; i < (is_amsgrad ? 4U : 3U); ++i) {
        EXPECT_FALSE(is_finite(state[i][17])) << "tensor " << i;
        EXPECT_TRUE(is_finite(state[i].narrow(0, 0, 17))) << "tensor " << i;
        EXPECT_TRUE(is_finite(state[i].narrow(0, 18, 22))) << "tensor " << i;
      }
    }
  }
}

TEST(SumOfSquares, AddsInFloat64InOneOrderOnAnyNumberOfThreads) {
  const at::Tensor x = Numbers(12).normal({100'003});
  at::set_num_threads(1);
  const double on_one = sum_of_squares(x);
  at::set_num_threads(2);
  EXPECT_EQ(sum_of_squares(x), on_one);
  at::set_num_threads(1);
  EXPECT_NEAR(on_one / x.to(at::kDouble).square().sum().item<double>(), 1.0, 1e-13);
  const at::Tensor narrow = x.to(at::kBFloat16);
  EXPECT_EQ(sum_of_squares(narrow), sum_of_squares(narrow.to(at::kFloat)));
}

}  // namespace
}  // namespace automodel::kernels

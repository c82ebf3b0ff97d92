#include "kernels/optimizer_step.h"

#include <cmath>

#include "kernels/differentiation.h"
#include "kernels/reference.h"

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

TEST(AdamStep, HasTheSameBitsOnTwoThreads) {
  for (const bool is_amsgrad : {false, true}) {
    at::set_num_threads(1);
    const Tensors on_one = step(adam_step, {.weight_decay = 0.1}, is_amsgrad, at::kFloat);
    at::set_num_threads(2);
    const Tensors on_two = step(adam_step, {.weight_decay = 0.1}, is_amsgrad, at::kFloat);
    at::set_num_threads(1);
    for (size_t i = 0; i < on_one.size(); ++i) EXPECT_TRUE(at::equal(on_one[i], on_two[i])) << i;
  }
}

TEST(AdamStep, HidesNeitherNaNNorInf) {
  for (const bool is_amsgrad : {false, true}) {
    for (const double poison : kPoisons) {
      SCOPED_TRACE(testing::Message() << poison << (is_amsgrad ? " amsgrad" : ""));
      at::Tensor gradient = at::ones({40});
      gradient[17] = poison;
      Tensors state = {at::ones({40}), at::zeros({40}), at::zeros({40}), at::zeros({40})};
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
}

}  // namespace
}  // namespace automodel::kernels

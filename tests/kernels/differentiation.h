#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/fused.h"

namespace automodel::kernels {

/// Normal numbers that are the same in every run.
class Numbers final {
 public:
  explicit Numbers(uint64_t seed) : generator_(at::detail::createCPUGenerator(seed)) {}
  at::Tensor normal(at::IntArrayRef sizes) { return at::randn(sizes, generator_); }

 private:
  at::Generator generator_;
};

using Tensors = std::vector<at::Tensor>;
/// Differentiable tensors to results; computes in the dtype of what it is given.
using Operation = std::function<Tensors(const Tensors&)>;

/// An operation's results, then the gradient of every input (of the results' sum weighted by fixed
/// numbers, normal ones that bfloat16 holds), all detached.
inline Tensors differentiate(const Operation& operation, const Tensors& inputs,
                             at::ScalarType dtype) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().to(dtype, false, true).requires_grad_());
  }
  Tensors all = operation(leaves);
  Numbers numbers(99);
  at::Tensor total;
  for (at::Tensor& result : all) {
    const at::Tensor part =
        (result * numbers.normal(result.sizes()).to(at::kBFloat16).to(dtype)).sum();
    total = total.defined() ? total + part : part;
    result = result.detach();
  }
  total.backward();
  for (const at::Tensor& leaf : leaves) {
    all.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf).detach());
  }
  return all;
}

/// |x - truth| / |truth| in the L2 norm, in float64; |x| when the truth is zero.
inline double relative_error(const at::Tensor& x, const at::Tensor& truth) {
  const double size = truth.to(at::kDouble).norm().item<double>();
  const double error = (x.to(at::kDouble) - truth.to(at::kDouble)).norm().item<double>();
  return size > 0 ? error / size : error;
}

/// Every tensor of `fused` is at most twice as far from `exact` (float64) as `plain` is, of its
/// dtype, or 1e-6 away: the order of a sum is free, its precision is not.
inline void expect_as_close(const Tensors& fused, const Tensors& plain, const Tensors& exact) {
  ASSERT_EQ(fused.size(), exact.size());
  ASSERT_EQ(plain.size(), exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    SCOPED_TRACE("tensor " + std::to_string(i));
    ASSERT_EQ(fused[i].sizes(), exact[i].sizes());
    EXPECT_EQ(fused[i].scalar_type(), plain[i].scalar_type());
    const double allowed = std::max(2 * relative_error(plain[i], exact[i]), 1e-6);
    EXPECT_LE(relative_error(fused[i], exact[i]), allowed);
  }
}

/// The dtypes that the fused loops take.
constexpr at::ScalarType kFusedTypes[] = {at::kFloat, at::kBFloat16};

/// Results and gradients of `fused` in a dtype against those of `reference` in float64, of inputs
/// that the dtype holds.
inline void expect_fused_as_close(const Operation& fused, const Operation& reference,
                                  const Tensors& inputs, at::ScalarType dtype) {
  SCOPED_TRACE(c10::toString(dtype));
  at::set_num_threads(1);
  Tensors held;
  for (const at::Tensor& input : inputs) held.push_back(input.to(dtype));
  const Tensors actual = differentiate(fused, held, dtype);
  const PlainPathScope path;
  expect_as_close(actual, differentiate(reference, held, dtype),
                  differentiate(reference, held, at::kDouble));
}

/// In float32 and in bfloat16.
inline void expect_fused_as_close(const Operation& fused, const Operation& reference,
                                  const Tensors& inputs) {
  for (const at::ScalarType dtype : kFusedTypes) {
    expect_fused_as_close(fused, reference, inputs, dtype);
  }
}

/// Results and gradients have the same bits on one thread and on two.
inline void expect_same_on_two_threads(const Operation& fused, const Tensors& inputs) {
  for (const at::ScalarType dtype : kFusedTypes) {
    at::set_num_threads(1);
    const Tensors on_one = differentiate(fused, inputs, dtype);
    at::set_num_threads(2);
    const Tensors on_two = differentiate(fused, inputs, dtype);
    at::set_num_threads(1);
    for (size_t i = 0; i < on_one.size(); ++i) {
      EXPECT_TRUE(at::equal(on_one[i], on_two[i])) << dtype << " tensor " << i;
    }
  }
}

inline bool is_finite(const at::Tensor& x) {
  return at::isfinite(x).all().item<bool>();
}
/// No element is a finite number.
inline bool is_nowhere_finite(const at::Tensor& x) {
  return at::isfinite(x).logical_not().all().item<bool>();
}

/// Wherever the plain path gives NaN or Inf in float32 the fused one does in either dtype, and the
/// plain path does somewhere. In bfloat16 ATen's products by AMX spread a row's NaN to others.
inline void expect_nothing_hidden(const Operation& fused, const Operation& reference,
                                  const Tensors& inputs) {
  at::set_num_threads(1);
  for (const at::ScalarType dtype : kFusedTypes) {
    const Tensors actual = differentiate(fused, inputs, dtype);
    const Tensors expected = differentiate(reference, inputs, at::kFloat);
    int64_t num_poisoned = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const at::Tensor is_poisoned = at::isfinite(expected[i]).logical_not();
      const at::Tensor is_hidden = is_poisoned.logical_and(at::isfinite(actual[i]));
      EXPECT_EQ(is_hidden.sum().item<int64_t>(), 0) << dtype << " tensor " << i;
      num_poisoned += is_poisoned.sum().item<int64_t>();
    }
    EXPECT_GT(num_poisoned, 0);
  }
}

/// A copy of `inputs` with `value` at the flat `place` of tensor `index`.
inline Tensors poisoned(const Tensors& inputs, size_t index, int64_t place, double value) {
  Tensors copies;
  for (const at::Tensor& input : inputs) copies.push_back(input.clone());
  copies[index].view({-1})[place] = value;
  return copies;
}

/// What stops a diverged run when nothing hides it.
constexpr double kPoisons[] = {std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity()};

}  // namespace automodel::kernels

#include "kernels/layers/xielu.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/differentiation.h"
#include "tensor/dtype.h"

namespace automodel::kernels {
namespace {

/// Of x and the two learned factors, which a policy may hold in x's dtype.
Tensors fused(const Tensors& in) {
  const at::ScalarType wide = tensor::wide_dtype(in[0].scalar_type());
  const auto fixed = in[0].options().dtype(wide).requires_grad(false);
  return {xielu(in[0], {in[1].to(wide), in[2].to(wide), at::full({1}, 0.5, fixed),
                        at::full({1}, -1e-6, fixed)})};
}

/// The definition, by ATen's operations in x's dtype.
Tensors defined_as(const Tensors& in) {
  const at::Tensor below = at::expm1(at::clamp_max(in[0], -1e-6)) - in[0];
  return {at::where(in[0] > 0, in[1] * in[0] * in[0], below * in[2]) + in[0] * 0.5};
}

/// More than a piece, and no whole number of blocks.
Tensors inputs() {
  Numbers numbers(7);
  return {numbers.normal({77, 1031}) * 2, at::full({1}, 0.8), at::full({1}, 1.3)};
}

TEST(XieluTest, IsAsItsDefinitionWithItsGradients) {
  expect_fused_as_close(fused, defined_as, inputs());
  const Tensors exact = differentiate(defined_as, inputs(), at::kDouble);
  const Tensors found = differentiate(fused, inputs(), at::kDouble);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_LT(relative_error(found[i], exact[i]), 1e-12) << i;
  }
}

TEST(XieluTest, HasTheSameBitsOnAnyNumberOfThreads) {
  expect_same_on_two_threads(fused, inputs());
}

TEST(XieluTest, ANaNIsInTheResultAndInTheGradientsBelowZero) {
  Tensors poisoned = inputs();
  poisoned[0][3][5] = std::numeric_limits<double>::quiet_NaN();
  const Tensors found = differentiate(fused, poisoned, at::kFloat);
  EXPECT_FALSE(is_finite(found[0]));
  EXPECT_FALSE(is_finite(found[1]));
  EXPECT_FALSE(is_finite(found[3]));
}

TEST(XieluTest, TakesNothing) {
  const Tensors none =
      differentiate(fused, {at::empty({0, 4}), at::ones({1}), at::ones({1})}, at::kFloat);
  EXPECT_EQ(none[0].numel(), 0);
  EXPECT_EQ(none[2].item<float>(), 0);
}

}  // namespace
}  // namespace automodel::kernels

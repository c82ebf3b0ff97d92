#include "kernels/layers/normalized_rows.h"

#include "kernels/differentiation.h"

namespace automodel::kernels {
namespace {

Tensors of_length_one(const Tensors& in) {
  return {rows_of_length_one(in[0])};
}

/// As PyTorch's normalize(), composed.
Tensors composed_of_length_one(const Tensors& in) {
  const at::Tensor wide = in[0].to(in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return {(wide / wide.norm(2, {-1}, true).clamp_min(1e-12)).to(in[0].scalar_type())};
}

TEST(RowsOfLengthOne, AreThePlainQuotients) {
  Numbers numbers(7);
  expect_fused_as_close(of_length_one, composed_of_length_one, {numbers.normal({33, 37})});
}

TEST(RowsOfLengthOne, ARowOfZerosStaysAndOneThatIsTooShortIsDividedByTheLeastLength) {
  const at::Tensor x = at::zeros({2, 4});
  x[1] = at::full({4}, 1e-13f);
  const Tensors found = differentiate(of_length_one, {x}, at::kFloat);
  const Tensors wanted = differentiate(composed_of_length_one, {x}, at::kFloat);
  EXPECT_TRUE(at::equal(found[0][0], at::zeros({4})));
  EXPECT_TRUE(at::allclose(found[0], wanted[0]));
  EXPECT_TRUE(at::allclose(found[1], wanted[1]));
}

}  // namespace
}  // namespace automodel::kernels

#include "kernels/products/product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/text.h"
#include "kernels/cpu/loops.h"
#include "kernels/differentiation.h"
#include "kernels/products/linear.h"
#include "support/allocation_counter.h"

namespace automodel::kernels {
namespace {

struct ProductSizes {
  int64_t m, n, k;
};

/// Around the sizes of tiles (14 and 6 rows, or 8 and 4 of them; 32, 16 and 8 columns) and of what
/// the cache gets (256 columns, 768 steps).
const std::vector<ProductSizes> kProductSizes = {
    {1, 1, 1},      {1, 33, 7},    {13, 31, 15},   {14, 32, 16},   {15, 33, 17},
    {28, 64, 256},  {5, 7, 257},   {29, 513, 3},   {100, 544, 40}, {2, 1030, 258},
    {300, 96, 513}, {64, 32, 200}, {200, 17, 64},  {100, 8, 301},  {8, 100, 300},
    {9, 16, 33},    {22, 20, 70},  {33, 290, 769}, {530, 40, 800}, {14, 257, 1541}};

std::string text_of(const ProductSizes& s) {
  return cat("[", s.m, ", ", s.k, "] x [", s.k, ", ", s.n, "]");
}

/// A matrix in the layout asked for: contiguous rows, contiguous columns, or rows inside longer
/// ones.
at::Tensor laid_out(const at::Tensor& matrix, int layout) {
  if (layout == 0) return matrix.contiguous();
  if (layout == 1) return matrix.t().contiguous().t();
  at::Tensor wide = at::full({matrix.size(0), matrix.size(1) + 5}, NAN, matrix.options());
  wide.narrow(1, 2, matrix.size(1)).copy_(matrix);
  return wide.narrow(1, 2, matrix.size(1));
}

/// At most twice as far from the product in float64 as ATen's, or 1e-6. A product of bfloat16 is as
/// near as float32 sums that are rounded once.
void expect_product(const at::Tensor& actual, const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(actual.scalar_type(), a.scalar_type());
  const at::Tensor truth = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  if (a.scalar_type() == at::kBFloat16) {
    EXPECT_LE(relative_error(actual, truth),
              1.001 * relative_error(truth.to(at::kBFloat16), truth) + 1e-6);
  } else {
    EXPECT_LE(relative_error(actual, truth),
              std::max(1e-6, 2 * relative_error(at::mm(a, b), truth)));
  }
}

TEST(Product, EqualsAtensInAnyLayout) {
  Numbers numbers(1);
  for (const ProductSizes& s : kProductSizes) {
    const at::Tensor x = numbers.normal({s.m, s.k}), y = numbers.normal({s.k, s.n});
    for (int i = 0; i < 18; ++i) {
      const int layout = i % 9;
      const at::Tensor a = x.to(kFusedTypes[i / 9]), b = y.to(kFusedTypes[i / 9]);
      SCOPED_TRACE(cat(text_of(s), ", layouts ", layout / 3, " and ", layout % 3));
      const at::Tensor left = laid_out(a, layout / 3), right = laid_out(b, layout % 3);
      expect_product(product(left, right), a, b);
      expect_product(product(Factor(left.t()).t(), Factor(right.t()).t()), a, b);
    }
  }
}

TEST(Product, AddsAndScalesIntoPartOfAMatrix) {
  Numbers numbers(2);
  for (const ProductSizes& s : kProductSizes) {
    SCOPED_TRACE(text_of(s));
    const at::Tensor a = numbers.normal({s.m, s.k}), b = numbers.normal({s.k, s.n});
    const at::Tensor before = numbers.normal({s.m + 2, s.n + 3});
    const at::Tensor all = before.clone();
    product_into(a, b, all.narrow(0, 1, s.m).narrow(1, 2, s.n), {.adds = true, .alpha = 0.5});
    at::Tensor expected = before.to(at::kDouble);
    expected.narrow(0, 1, s.m).narrow(1, 2, s.n).add_(at::mm(a.to(at::kDouble), b.to(at::kDouble)),
                                                      0.5);
    EXPECT_LE(relative_error(all, expected), 1e-6);
    const at::Tensor narrow = before.to(at::kBFloat16), left = a.to(at::kBFloat16),
                     right = b.to(at::kBFloat16);
    const at::Tensor place = narrow.narrow(0, 1, s.m).narrow(1, 2, s.n);
    const at::Tensor sum =
        place.to(at::kDouble) + 0.5 * at::mm(left.to(at::kDouble), right.to(at::kDouble));
    product_into(left, right, place, {.adds = true, .alpha = 0.5});
    EXPECT_LE(relative_error(place, sum),
              1.001 * relative_error(sum.to(at::kBFloat16), sum) + 1e-6);
    place.copy_(before.narrow(0, 1, s.m).narrow(1, 2, s.n));
    EXPECT_TRUE(at::equal(narrow, before.to(at::kBFloat16))) << "written beside the result";
    all.narrow(0, 1, s.m).narrow(1, 2, s.n).copy_(before.narrow(0, 1, s.m).narrow(1, 2, s.n));
    EXPECT_TRUE(at::equal(all, before)) << "written beside the result";
  }
}

TEST(Product, AddsABiasToEachRow) {
  Numbers numbers(9);
  for (const ProductSizes& s : kProductSizes) {
    for (const at::ScalarType dtype : kFusedTypes) {
      SCOPED_TRACE(cat(text_of(s), " of ", c10::toString(dtype)));
      const at::Tensor a = numbers.normal({s.m, s.k}).to(dtype),
                       b = numbers.normal({s.k, s.n}).to(dtype),
                       bias = numbers.normal({s.n}).to(dtype) * 10;
      const at::Tensor truth =
          at::addmm(bias.to(at::kDouble), a.to(at::kDouble), b.to(at::kDouble));
      const double rounding =
          dtype == at::kFloat ? 0 : relative_error(truth.to(at::kBFloat16), truth);
      EXPECT_LE(relative_error(product(a, b, {.bias = bias}), truth), 1.001 * rounding + 1e-6);
      const at::Tensor sum = at::ones({s.m, s.n}, dtype);
      product_into(a, b, sum, {.adds = true, .bias = bias});
      const at::Tensor more = truth + 1;
      const double again = dtype == at::kFloat ? 0 : relative_error(more.to(at::kBFloat16), more);
      EXPECT_LE(relative_error(sum, more), 1.1 * again + 1e-6);
    }
  }
}

TEST(Product, ReadsNamedRows) {
  Numbers numbers(3);
  for (const at::ScalarType dtype : kFusedTypes) {
    const at::Tensor x = numbers.normal({40, 30}).to(dtype), ids = at::randint(40, {53}, at::kLong);
    const at::Tensor rows = x.index_select(0, ids);
    const at::Tensor right = numbers.normal({30, 50}).to(dtype),
                     left = numbers.normal({20, 53}).to(dtype);
    expect_product(product(Factor(x, ids), right), rows, right);
    expect_product(product(left, Factor(x, ids)), left, rows);
    expect_product(product(Factor(x, ids).t(), left.t()), rows.t(), left.t());
    expect_product(product(right.t(), Factor(x, ids).t()), right.t(), rows.t());
  }
}

/// The bits must not depend on who computes what.
TEST(Product, HasTheSameBitsHoweverItIsCut) {
  Numbers numbers(4);
  for (const at::ScalarType dtype : kFusedTypes) {
    const at::Tensor a = numbers.normal({300, 700}).to(dtype),
                     b = numbers.normal({700, 200}).to(dtype);
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    const at::Tensor whole = product(a, b);
    for (const int count : {2, 3, 4, 6}) {
      at::set_num_threads(count);
      EXPECT_TRUE(at::equal(product(a, b), whole)) << count << " threads";
    }
    at::set_num_threads(threads);
    EXPECT_TRUE(at::equal(product(a.narrow(0, 5, 38), b.narrow(1, 3, 77)),
                          whole.narrow(0, 5, 38).narrow(1, 3, 77)));
    // Parts of float32 numbers are multiplied in an order that depends on which factor is the left.
    if (dtype == at::kBFloat16 || std::string_view(cpu::loops().isa) != "amx") {
      EXPECT_TRUE(at::equal(product(Factor(b).t(), Factor(a.narrow(0, 5, 8)).t()),
                            whole.narrow(0, 5, 8).t()));
    }
    at::Tensor sum = numbers.normal({300, 200}).to(dtype);
    at::Tensor part = sum.narrow(0, 7, 9).clone();
    product_into(a.narrow(0, 7, 9), b, part, {.adds = true, .alpha = 0.3});
    product_into(a, b, sum, {.adds = true, .alpha = 0.3});
    EXPECT_TRUE(at::equal(part, sum.narrow(0, 7, 9)));
  }
}

TEST(Product, KeepsNaNAndInfWhereTheyBelong) {
  Numbers numbers(5);
  for (const at::ScalarType dtype : kFusedTypes) {
    at::Tensor a = numbers.normal({20, 40}).to(dtype), b = numbers.normal({40, 50}).to(dtype);
    a[3][2] = NAN;
    b[7][45] = std::numeric_limits<float>::infinity();
    const at::Tensor result = product(a, b);
    // In bfloat16 ATen's products by AMX spread a row's NaN to others.
    const at::Tensor expected = at::mm(a.to(at::kFloat), b.to(at::kFloat));
    EXPECT_TRUE(at::equal(result.isfinite(), expected.isfinite()));
    EXPECT_TRUE(result.select(0, 3).isnan().all().item<bool>());
    EXPECT_FALSE(result.select(0, 4).narrow(0, 0, 45).isnan().any().item<bool>());
  }
}

TEST(Product, OfNothingIsZeroOrWhatWasThere) {
  const at::Tensor a = at::empty({3, 0}), b = at::empty({0, 4}), out = at::ones({3, 4});
  product_into(a, b, out, {.adds = true});
  EXPECT_TRUE(at::equal(out, at::ones({3, 4})));
  product_into(a, b, out);
  EXPECT_TRUE(at::equal(out, at::zeros({3, 4})));
  EXPECT_EQ(product(at::empty({0, 5}), at::empty({5, 2})).sizes(), at::IntArrayRef({0, 2}));
}

TEST(Product, OfOtherDtypesIsAtens) {
  Numbers numbers(6);
  const at::Tensor a = numbers.normal({9, 20}), b = numbers.normal({20, 11});
  const at::Tensor wide_a = a.to(at::kDouble), wide_b = b.to(at::kDouble);
  EXPECT_TRUE(at::equal(product(wide_a, wide_b), at::mm(wide_a, wide_b)));
  const at::Tensor narrow_a = a.to(at::kBFloat16), narrow_b = b.to(at::kBFloat16);
  at::Tensor out = at::ones({9, 11}, narrow_a.options());
  product_into(narrow_a, narrow_b, out, {.adds = true, .alpha = 2});
  const at::Tensor truth = 1 + 2 * at::mm(narrow_a.to(at::kDouble), narrow_b.to(at::kDouble));
  EXPECT_LE(relative_error(out, truth), 6e-3);  // rounded to 8 bits, perhaps twice
}

TEST(Product, HasTheSameNumbersInEveryInstructionSet) {
  Numbers numbers(7);
  std::vector<const cpu::LoopTable*> tables = {&cpu::baseline_loops(), &cpu::loops()};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    tables.push_back(&cpu::avx2_loops());
  }
  for (const ProductSizes& s : kProductSizes) {
    for (size_t i = 0; i < 2 * tables.size(); ++i) {
      const cpu::LoopTable* table = tables[i / 2];
      const at::ScalarType dtype = kFusedTypes[i % 2];
      SCOPED_TRACE(cat(table->isa, ": ", text_of(s), " ", c10::toString(dtype)));
      const at::Tensor a = numbers.normal({s.k, s.m}).to(dtype),
                       b = numbers.normal({s.n, s.k}).to(dtype);
      at::Tensor out = at::empty({s.m, s.n}, dtype);
      cpu::ProductPart part;
      part.a = {a.data_ptr(), s.m, nullptr, true, dtype == at::kBFloat16};
      part.b = {b.data_ptr(), s.k, nullptr, true, dtype == at::kBFloat16};
      part.c = out.data_ptr();
      part.is_c_bfloat16 = dtype == at::kBFloat16;
      part.c_stride = s.n;
      part.depth = s.k;
      part.row_end = s.m;
      part.column_end = s.n;
      at::Tensor scratch = at::empty({table->product_scratch(part)});
      table->multiply(part, scratch.data_ptr<float>());
      expect_product(out, a.t(), b.t());
    }
  }
}

TEST(Linear, GivesAtensResultsAndGradients) {
  Numbers numbers(8);
  const Tensors inputs = {numbers.normal({3, 70, 40}), numbers.normal({50, 40}),
                          numbers.normal({50})};
  const Operation ours = [](const Tensors& x) { return Tensors{linear(x[0], x[1], x[2])}; };
  const Operation atens = [](const Tensors& x) { return Tensors{at::linear(x[0], x[1], x[2])}; };
  expect_fused_as_close(ours, atens, inputs);
}

TEST(Linear, GivesGradientsToThoseWhoWantThem) {
  Numbers numbers(9);
  const at::Tensor x = numbers.normal({6, 5}).requires_grad_();
  const at::Tensor weight = numbers.normal({4, 5});
  linear(x, weight, at::Tensor()).sum().backward();
  EXPECT_LE(relative_error(x.grad(), weight.sum(0).expand({6, 5})), 1e-6);
  EXPECT_FALSE(weight.grad().defined());
}

}  // namespace
}  // namespace automodel::kernels

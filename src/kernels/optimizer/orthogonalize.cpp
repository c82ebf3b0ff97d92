#include "kernels/optimizer/orthogonalize.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/products/product.h"

namespace automodel::kernels {

namespace {

/// alpha a b, of which it is known that it is symmetric: rows up to the diagonal, a block at a
/// time, and their mirror image.
at::Tensor symmetric_product(const at::Tensor& a, const at::Tensor& b, double alpha = 1) {
  const int64_t size = a.size(0);
  const int64_t block = a.is_cpu() ? 128 : size;
  const at::Tensor out = at::empty({size, size}, a.options());
  for (int64_t begin = 0; begin < size; begin += block) {
    const int64_t end = std::min(begin + block, size);
    const at::Tensor rows = out.slice(0, begin, end);
    product_into(a.slice(0, begin, end), b.slice(1, 0, end), rows.slice(1, 0, end),
                 {.alpha = alpha});
    out.slice(0, 0, begin).slice(1, begin, end).copy_(rows.slice(1, 0, begin).t());
  }
  return out;
}

/// The iterations on the gram matrix A of x, by which only the last product has x's width: each is
/// a polynomial p of A, and A becomes p A p. Rounding of A's small eigenvalues would grow in them,
/// so that A is made anew from x after each `kFresh` iterations.
at::Tensor iterate_on_gram(at::Tensor x, const std::vector<std::array<double, 3>>& coefficients) {
  constexpr size_t kFresh = 3;
  for (size_t begin = 0; begin < coefficients.size();) {
    // The first iterations raise small singular values most.
    const size_t end = std::min(coefficients.size(), begin + (begin == 0 ? 2 : kFresh));
    at::Tensor gram = symmetric_product(x, x.t());
    at::Tensor factor;
    for (size_t i = begin; i < end; ++i) {
      const auto& [a, b, c] = coefficients[i];
      at::Tensor p = symmetric_product(gram, gram, c).add_(gram, b);
      p.diagonal().add_(a);
      if (i + 1 < end) gram = symmetric_product(symmetric_product(gram, p), p);
      factor = factor.defined() ? symmetric_product(p, factor) : p;
    }
    x = product(factor, x);
    begin = end;
  }
  return x;
}

/// The iterations as they are written.
at::Tensor iterate(at::Tensor x, const std::vector<std::array<double, 3>>& coefficients) {
  for (const auto& [a, b, c] : coefficients) {
    const at::Tensor gram = symmetric_product(x, x.t());
    const at::Tensor factor = symmetric_product(gram, gram, c).add_(gram, b);
    const at::Tensor next = (x * a).contiguous();
    product_into(factor, x, next, {.adds = true});
    x = next;
  }
  return x;
}

}  // namespace

at::Tensor orthogonalize(const at::Tensor& matrix, const OrthogonalizeOptions& options) {
  AM_CHECK(matrix.dim() == 2);
  const at::NoGradGuard no_grad;
  const bool is_tall = matrix.size(0) > matrix.size(1);
  const double norm = matrix.norm().item<double>() * options.norm_factor;
  const double divisor = options.is_eps_added ? norm + options.eps : std::max(norm, options.eps);
  // Its gram matrix is the smaller one.
  at::Tensor x = matrix / divisor;
  if (is_tall) x = x.t();
  x = options.is_narrow ? iterate(x.to(at::kBFloat16), options.coefficients)
                        : iterate_on_gram(x, options.coefficients);
  return (is_tall ? x.t() : x).to(matrix.scalar_type()).contiguous();
}

}  // namespace automodel::kernels

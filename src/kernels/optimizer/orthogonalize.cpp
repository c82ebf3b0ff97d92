#include "kernels/optimizer/orthogonalize.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/products/linear.h"

namespace automodel::kernels {

at::Tensor orthogonalize(const at::Tensor& matrix, const OrthogonalizeOptions& options) {
  AM_CHECK(matrix.dim() == 2);
  const at::NoGradGuard no_grad;
  const bool is_tall = matrix.size(0) > matrix.size(1);
  const double norm = matrix.norm().item<double>() * options.norm_factor;
  const double divisor = options.is_eps_added ? norm + options.eps : std::max(norm, options.eps);
  at::Tensor x = (is_tall ? matrix.t() : matrix) / divisor;
  if (!x.is_cpu()) x = x.to(at::kBFloat16);
  x = x.contiguous();  // its gram matrix is the smaller one
  for (const auto& [a, b, c] : options.coefficients) {
    const at::Tensor gram = kernels::linear(x, x, {});
    const at::Tensor factor =
        gram * b + kernels::linear(gram, gram, {}) * c;  // symmetric, as the gram is
    x = x * a + kernels::linear(factor, x.t().contiguous(), {});
  }
  return (is_tall ? x.t() : x).to(matrix.scalar_type()).contiguous();
}

}  // namespace automodel::kernels

#include "kernels/norm.h"

#include <ATen/ATen.h>

namespace automodel::kernels {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, const NormOptions& options) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(wide.pow(2).mean(-1, true) + options.eps);
  at::Tensor w = weight.to(at::kFloat);
  if (options.adds_one) w = w + 1.0;
  return (wide * scale * w).to(x.scalar_type());
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                                               const at::Tensor& weight,
                                               const NormOptions& options) {
  at::Tensor sum = x + residual;
  at::Tensor norm = rms_norm(sum, weight, options);
  return {std::move(sum), std::move(norm)};
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double eps) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

}  // namespace automodel::kernels

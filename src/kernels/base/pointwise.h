#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

// Functions of single numbers. Their results and gradients do not depend on the number of threads:
// ATen gives each thread a part of the tensor and rounds the last numbers of a part, which do not
// fill a vector, in another way. Any shape, dtype and device; they are differentiable once.

/// x / (1 + exp(-x)).
at::Tensor silu(const at::Tensor& x);
/// 1 / (1 + exp(-x)).
at::Tensor sigmoid(const at::Tensor& x);
/// log(1 + exp(x)); x itself above 20, as torch's.
at::Tensor softplus(const at::Tensor& x);

/// silu's gradient with respect to x.
at::Tensor silu_backward(const at::Tensor& gradient, const at::Tensor& x);

}  // namespace automodel::kernels

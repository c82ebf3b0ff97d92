#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// Depthwise convolution along a sequence in which a result depends on no later position: y_t =
/// bias + sum over m of weight[:, 0, K - 1 - m] * x_{t - m}. x [B, S, C], weight [C, 1, K], bias
/// [C] or undefined. `runs` [B, S] int64 or undefined: positions of another run count as zeros
/// (packed documents). Sums are float32 (float64 for float64 x); the result has x's dtype.
/// Differentiable in x, weight and bias; saves x and the weight.
at::Tensor causal_conv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const at::Tensor& runs);

}  // namespace automodel::kernels

#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// x [..., in] times weight^T [in, out] plus bias [out] (or undefined): [..., out] in the dtype of
/// x, which is also weight's. Differentiable. Float16 matrices on the CPU are multiplied in float32
/// and the sums rounded once, several times faster than ATen's product; x and weight are saved in
/// 16 bits.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Whether ATen's products of bfloat16 matrices, by CPU instructions for them, are faster on this
/// CPU than loops that widen them to float32.
bool has_fast_bfloat16_products();

}  // namespace automodel::kernels

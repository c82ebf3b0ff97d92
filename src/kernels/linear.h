#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// x [..., in] times weight^T [in, out] plus bias [out] (or undefined): [..., out], dtype of x,
/// which is weight's. Differentiable. 16-bit matrices on a CPU without instructions for them are
/// multiplied in float32 and the sums rounded once, several times faster there than ATen's product;
/// x and weight are kept in 16 bits for the backward pass.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Whether this CPU multiplies bfloat16 matrices faster than float32 ones (AVX512_BF16, AMX).
bool has_fast_bfloat16_products();

}  // namespace automodel::kernels

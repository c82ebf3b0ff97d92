#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// x [..., in] times weight^T [in, out] plus bias [out] (or undefined): [..., out], dtype of x,
/// which is weight's. Differentiable. 16-bit matrices on a CPU without instructions for them are
/// multiplied in float32 (linear_widened), several times faster there than ATen's product.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// The same with every product in float32 from 16-bit operands, rounded once at the end: for
/// bfloat16 and float16 on the CPU. Saves x and weight in 16 bits for the backward pass.
at::Tensor linear_widened(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Whether this CPU multiplies bfloat16 matrices faster than float32 ones (AVX512_BF16, AMX).
bool has_fast_bfloat16_products();

}  // namespace automodel::kernels

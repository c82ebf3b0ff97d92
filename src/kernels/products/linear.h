#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// x [..., in] times weight^T [in, out] plus bias [out] (or undefined): [..., out] in the dtype of
/// x, which is also weight's. Differentiable; a result of a norm or an activation is not kept for
/// the backward pass but made again (kept_input.h). Float16 matrices on the CPU are multiplied in
/// float32 and the sums rounded once, several times faster than ATen's product; x and weight are
/// saved in 16 bits.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace automodel::kernels

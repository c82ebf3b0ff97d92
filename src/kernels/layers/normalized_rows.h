#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// x [..., D] / max(|x|, 1e-12), |x| the length of each row in float32 or wider; the result has x's
/// dtype. Keeps x and the lengths for backward, no other copy. Differentiable once.
at::Tensor rows_of_length_one(const at::Tensor& x);

}  // namespace automodel::kernels

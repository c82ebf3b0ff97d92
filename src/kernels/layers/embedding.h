#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// Looks up rows of weight [V, D]: ids int64 [...] to [..., D]. Differentiable in weight, except
/// the row `padding_idx` (-1: none). On the CPU: rows of equal ids are summed in float32 in the
/// order of the tokens, whatever the number of threads; when weight is a leaf whose .grad is
/// already bound, the gradient is a sparse tensor of those rows, so that no dense [V, D] temporary
/// is made; an id outside [0, V) throws InputError naming it.
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids, int64_t padding_idx = -1);

}  // namespace automodel::kernels

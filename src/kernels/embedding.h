#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// Rows of a table: weight [V, D], ids int64 [...] to [..., D]. Differentiable in weight; the row
/// `padding_idx` (-1: none) gets no gradient. On the CPU: rows of equal ids are summed in float32,
/// in the order of the tokens, whatever the number of threads; when weight is a leaf whose .grad is
/// bound already, the gradient travels as those rows (a sparse tensor), so that no dense [V, D]
/// temporary arises; an id outside [0, V) is an InputError naming it.
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids, int64_t padding_idx = -1);

}  // namespace automodel::kernels

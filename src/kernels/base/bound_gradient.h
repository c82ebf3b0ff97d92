#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// Where the gradient of `weight` may be added at once, by a function's backward, in place of
/// returning it: the .grad that its owner has given it, or the transposed of that for a transposed
/// weight. Undefined where autograd has to see the gradient: without such memory, under hooks of
/// the weight, where another gradient than all of .grad was asked for (torch::autograd::grad), or a
/// graph of the backward pass. Call it in a backward, on the thread that runs it.
at::Tensor bound_gradient(const at::Tensor& weight);

/// What such a backward returns then: a sparse gradient of no elements, which autograd adds for
/// nothing, and after which its hooks run as after any other.
at::Tensor added_gradient(const at::Tensor& weight);

}  // namespace automodel::kernels

#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

namespace automodel::kernels {

// The backward of a product needs its input for its weight's gradient. Most often that is a result
// of a norm or an activation, whose node keeps what it was made of anyway: the result is not kept,
// and the node makes it again.

/// Whether a norm or activation by the CPU's loops has returned x, or a tensor of which x is a
/// reshape, so that its node can make it again; never by a device's kernels, whose memory is worth
/// less than their time.
bool is_made_again(const at::Tensor& x);

/// For forward: what the node of a product saves of its input x. That is x; or where a fused norm
/// or activation has returned x, an undefined tensor, and its node is noted in `context`.
at::Tensor input_to_save(torch::autograd::AutogradContext& context, const at::Tensor& x);

/// For backward: the input, from what was saved of it.
at::Tensor saved_input(torch::autograd::AutogradContext& context, const at::Tensor& saved);

}  // namespace automodel::kernels

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace torch::autograd {
struct Node;
}

namespace automodel::kernels {

/// How a norm is computed. RMSNorm: y = x / sqrt(mean(x^2) + eps) * w, in float32; `adds_one`
/// multiplies by (1 + w) instead (Gemma). The result has the wider of the dtypes of x and w, as
/// their product has in transformers.
struct NormOptions {
  double eps = 1e-6;
  bool adds_one = false;
};

/// RMSNorm over the last dim. x [..., D], weight [D]. Differentiable in both.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, const NormOptions& options);

/// x / sqrt(mean(x^2) + eps) over the last dim, an RMSNorm without a weight, in float32 or wider;
/// the result has x's dtype. Differentiable.
at::Tensor unweighted_rms_norm(const at::Tensor& x, double eps);

/// The residual sum and its norm in one pass: {x + residual, rms_norm(x + residual)}. The sum has
/// the wider of the two dtypes.
std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x, const at::Tensor& residual,
                                               const at::Tensor& weight,
                                               const NormOptions& options);

/// LayerNorm over the last dim. x [..., D], weight [D], bias [D] or undefined.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double eps);

/// The residual sum and its norm in one pass: {x + residual, layer_norm(x + residual)}. The sum has
/// the wider of the two dtypes.
std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& x, const at::Tensor& residual,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double eps);

/// Whether the autograd node has returned a tensor as its output `output` that is a norm of one of
/// the functions above, the fused one, and can make it again (kept_input.h).
bool has_normed(torch::autograd::Node& node, uint32_t output);
/// The norm of such a node, to the bit. In backward only, before the node's own.
at::Tensor normed_again(torch::autograd::Node& node);

}  // namespace automodel::kernels

#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// The numbers of a layer's xIELU, each a tensor of one element, in the dtype of sums: float32, or
/// float64 with float64 inputs.
struct XieluFactors {
  at::Tensor positive;  ///< of x^2 above 0; learned
  at::Tensor negative;  ///< of exp(x) - 1 - x from 0 down; learned
  at::Tensor beta;      ///< of x everywhere
  at::Tensor bound;     ///< just below 0: exp sees at most this
};

/// xIELU (Huang and Schlag 2024, arXiv 2411.13010), element by element: positive x^2 + beta x above
/// 0, negative (exp(min(x, bound)) - 1 - x) + beta x elsewhere, computed in the factors' dtype and
/// rounded once to x's. Differentiable in x, positive and negative. The gradients of these two are
/// sums over all elements in an order that no number of threads changes. Keeps x alone.
at::Tensor xielu(const at::Tensor& x, const XieluFactors& factors);

}  // namespace automodel::kernels

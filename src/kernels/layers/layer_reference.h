#pragma once

#include "kernels/layers/activation.h"
#include "kernels/layers/norm.h"
#include "kernels/layers/rope.h"

namespace automodel::kernels {

/// The plain paths of a layer's fused operations: ATen's own operations and autograd, on any device
/// and dtype. Tests compare fused paths with them, and they run where there is no fused path.
at::Tensor rms_norm_reference(const at::Tensor& x, const at::Tensor& weight,
                              const NormOptions& options);
at::Tensor layer_norm_reference(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias, double eps);
at::Tensor activate_reference(const at::Tensor& x, Activation activation);
at::Tensor gated_activation_reference(const at::Tensor& gate_up, Activation activation);
Qkv split_norm_rotate_reference(const at::Tensor& qkv, const QkvOptions& options);

}  // namespace automodel::kernels

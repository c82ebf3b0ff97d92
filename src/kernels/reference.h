#pragma once

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/flash_adam.h"
#include "kernels/norm.h"
#include "kernels/optimizer_step.h"
#include "kernels/rope.h"

namespace automodel::kernels {

/// The plain path of every fused operation: ATen's own operations and autograd, on any device and
/// dtype. Tests compare fused paths with it, and it runs where there is no fused path.
at::Tensor rms_norm_reference(const at::Tensor& x, const at::Tensor& weight,
                              const NormOptions& options);
at::Tensor layer_norm_reference(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias, double eps);
at::Tensor activate_reference(const at::Tensor& x, Activation activation);
at::Tensor gated_activation_reference(const at::Tensor& gate_up, Activation activation);
Qkv split_norm_rotate_reference(const at::Tensor& qkv, const QkvOptions& options);
void adam_step_reference(at::Tensor parameter, const at::Tensor& gradient, at::Tensor exp_avg,
                         at::Tensor exp_avg_sq, at::Tensor max_exp_avg_sq,
                         const AdamOptions& options);
void adam_eight_bit_step_reference(at::Tensor parameter, const at::Tensor& gradient,
                                   EightBitState exp_avg, EightBitState exp_avg_sq,
                                   const AdamOptions& options);

void flash_adam_step_reference(at::Tensor parameter, const at::Tensor& gradient,
                               const FlashAdamState& state, const FlashAdamOptions& options);

}  // namespace automodel::kernels

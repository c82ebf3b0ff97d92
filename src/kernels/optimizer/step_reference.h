#pragma once

#include "kernels/optimizer/optimizer_step.h"

namespace automodel::kernels {

/// The plain paths of the optimizers' fused steps: ATen's own operations, on any device and dtype.
/// Tests compare fused steps with them, and they run where there is no fused step.
void adam_step_reference(at::Tensor parameter, const at::Tensor& gradient, at::Tensor exp_avg,
                         at::Tensor exp_avg_sq, at::Tensor max_exp_avg_sq,
                         const AdamOptions& options);
void adam_eight_bit_step_reference(at::Tensor parameter, const at::Tensor& gradient,
                                   EightBitState exp_avg, EightBitState exp_avg_sq,
                                   const AdamOptions& options);

}  // namespace automodel::kernels

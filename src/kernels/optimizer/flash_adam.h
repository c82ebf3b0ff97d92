#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/cpu/flash_group.h"

namespace automodel::kernels {

/// One step of flashoptim's FlashAdamW: m and v are exponential averages of the gradient and its
/// square, w = (1 - decay) * w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps).
struct FlashAdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double decay = 0;         ///< what a weight loses of itself in this step
  int64_t step = 1;         ///< t, counted from 1
  double grad_scale = 1.0;  ///< the gradient is multiplied by it first (clipping)
};

/// The factors of a step, rounded as the package's kernel does: to float32 before betas are
/// subtracted from 1 and raised to powers.
FlashAdamFactors flash_adam_factors(const FlashAdamOptions& options);

/// What FlashAdamW keeps beside a parameter, one-dimensional and contiguous.
///
/// With scales (float16, one for each kFlashGroup elements; the last group may be shorter) averages
/// are codes of a byte: `exp_avg` (int8) of x = n / scale as 127 * 2 x / (1 + |x|), `exp_avg_sq`
/// (uint8) of the root of n as 255 * root / scale, where a scale is the largest magnitude of its
/// group. Zeros in all of them mean zeros. Without scales, averages have the parameter's dtype.
struct FlashAdamState {
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  at::Tensor exp_avg_scales;  ///< both or none of the scales are defined
  at::Tensor exp_avg_sq_scales;
  /// What a bfloat16 or float16 parameter lacks of its weight, as a share of half the gap to the
  /// next number: of 127 (int8) or 32767 (int16). Undefined: the parameter is all there is.
  at::Tensor corrections;
};

/// Updates parameter and state in one pass over memory. Computes in float32 for parameters of
/// float32, bfloat16 and float16. A number that is not finite makes its group's scale not finite,
/// and so does an average beyond float16's largest number, 65504; one of a group below 3e-8 is
/// lost, as the package has it.
void flash_adam_step(at::Tensor parameter, const at::Tensor& gradient, const FlashAdamState& state,
                     const FlashAdamOptions& options);

/// The plain path of flash_adam_step: ATen's own operations, on any device; also float16
/// parameters.
void flash_adam_step_reference(at::Tensor parameter, const at::Tensor& gradient,
                               const FlashAdamState& state, const FlashAdamOptions& options);

}  // namespace automodel::kernels

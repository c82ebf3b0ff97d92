#pragma once

#include <cstdint>

namespace automodel::kernels {

/// Elements of a parameter that share a scale of their averages in FlashAdamW.
inline constexpr int64_t kFlashGroup = 32;

/// The factors of one step of FlashAdamW, in float32 as the arithmetic is.
struct FlashAdamFactors {
  float lr = 0;
  float beta1 = 0;
  float rest1 = 0;  ///< 1 - beta1, subtracted in float32
  float beta2 = 0;
  float rest2 = 0;
  float eps = 0;
  float decay = 1;        ///< weights are multiplied by it
  float correction1 = 1;  ///< 1 - beta1^t
  float correction2 = 1;
  float grad_scale = 1;
};

}  // namespace automodel::kernels

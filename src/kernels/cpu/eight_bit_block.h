#pragma once

#include <cstdint>

namespace automodel::kernels {

/// Elements of a parameter that share a factor of their averages in 8 bits, as in bitsandbytes.
inline constexpr int64_t kEightBitBlock = 256;

}  // namespace automodel::kernels

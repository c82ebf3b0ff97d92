#pragma once

#include <cstdint>

namespace automodel::kernels {

/// Elements that an update by ATen's operations changes at once, so that its copies in float32 are
/// small whatever the unit: as many as keep a CPU or a device busy.
constexpr int64_t elements_updated_at_once(bool on_device) {
  return int64_t{1} << (on_device ? 24 : 20);
}

}  // namespace automodel::kernels

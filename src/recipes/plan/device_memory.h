#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace automodel::recipes {

/// The memory of one rank's device.
struct DeviceMemory {
  std::string name;  ///< as the person wrote it: "h100", "80GiB"
  int64_t bytes = 0;
};

/// Parses a size ("80GiB", "80 GB", "40960MiB") or the name of a device ("h100", "a100-40g"), for
/// which it returns the memory that the device's driver offers. Throws UserError for anything else.
DeviceMemory parse_device_memory(std::string_view text);

}  // namespace automodel::recipes

#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace automodel::launcher {

/// The folders in which Linux shows what it knows; others in tests.
struct SystemFolders {
  std::string proc = "/proc";
  std::string sys = "/sys";
};

/// The smallest number of bytes that one of this process's control groups grants it: memory.max
/// (groups of version 2) or memory.limit_in_bytes (version 1); nullopt when nothing is limited.
std::optional<uint64_t> memory_limit(const SystemFolders& folders);

/// Cores that this process's control groups grant it; nullopt when nothing is limited.
std::optional<double> core_limit(const SystemFolders& folders);

}  // namespace automodel::launcher

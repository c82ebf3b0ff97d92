#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/checksum.h"

namespace automodel::checkpoint {

/// Checksum of a whole file; throws InputError.
uint64_t checksum_of_file(const std::string& path);

/// 16 lower-case hexadecimal digits, as `xxhsum -H3` prints them, and back.
std::string format_checksum(uint64_t checksum);
std::optional<uint64_t> parse_checksum(std::string_view text);

/// A file as it was written.
struct FileRecord {
  std::string path;
  uint64_t num_bytes = 0;
  uint64_t checksum = 0;  ///< of all bytes
};

}  // namespace automodel::checkpoint

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace automodel {

/// XXH3, 64 bits, of bytes that are passed piece by piece.
class Checksum final {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void add(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t checksum_of(std::string_view bytes);

/// Checksum of a whole file; `progress` counts bytes read. Throws InputError.
uint64_t checksum_of_file(const std::string& path, std::atomic<uint64_t>* progress = nullptr);

/// 16 lower-case hexadecimal digits, as `xxhsum -H3` prints them, and back.
std::string format_checksum(uint64_t checksum);
std::optional<uint64_t> parse_checksum(std::string_view text);

/// The path, size and checksum of a file as it was written.
struct FileRecord {
  std::string path;
  uint64_t num_bytes = 0;
  uint64_t checksum = 0;  ///< of all bytes
};

}  // namespace automodel

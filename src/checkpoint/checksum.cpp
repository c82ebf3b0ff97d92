#include "checkpoint/checksum.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "core/error.h"

namespace automodel::checkpoint {

uint64_t checksum_of_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw InputError(cat("cannot read ", path, ": ", std::strerror(errno)));
  std::vector<std::byte> buffer(size_t{1} << 20);
  Checksum checksum;
  int error = 0;
  while (true) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) error = errno;
    if (count <= 0) break;
    checksum.add({buffer.data(), static_cast<size_t>(count)});
  }
  ::close(fd);
  if (error != 0) throw InputError(cat("cannot read ", path, ": ", std::strerror(error)));
  return checksum.value();
}

std::string format_checksum(uint64_t checksum) {
  std::string text(16, '0');
  for (int digit = 15; digit >= 0; --digit, checksum >>= 4) {
    text[static_cast<size_t>(digit)] = "0123456789abcdef"[checksum & 15];
  }
  return text;
}

std::optional<uint64_t> parse_checksum(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace automodel::checkpoint

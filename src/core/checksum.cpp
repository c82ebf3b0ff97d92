#include "core/checksum.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "core/error.h"

namespace automodel {

struct Checksum::State {
  State() : xxh(XXH3_createState()) {
    AM_CHECK(xxh != nullptr && XXH3_64bits_reset(xxh) == XXH_OK);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  XXH3_state_t* xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

uint64_t Checksum::value() const {
  return XXH3_64bits_digest(state_->xxh);
}

uint64_t checksum_of(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t checksum_of_file(const std::string& path, std::atomic<uint64_t>* progress) {
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
    if (progress != nullptr) *progress += static_cast<uint64_t>(count);
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

}  // namespace automodel

#include "comm/store/store_wire.h"

#include <c10/util/hash.h>
#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "core/text.h"

namespace automodel::comm {

static_assert(std::endian::native == std::endian::little);

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  size_t filled = 0;
  while (filled < count) {
    const ssize_t size = ::getrandom(bytes.data() + filled, count - filled, 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw std::runtime_error(cat("getrandom: ", std::strerror(errno)));
    filled += static_cast<size_t>(size);
  }
  return bytes;
}

std::string prove(const std::string& secret, std::string_view role, std::string_view client_nonce,
                  std::string_view server_nonce) {
  // HMAC's form: a hash of the secret and the hash of the secret and the message.
  constexpr size_t kBlockBytes = 64;
  std::string key = secret.size() > kBlockBytes ? c10::sha1(secret).str() : secret;
  key.resize(kBlockBytes, '\0');
  const auto masked = [&key](char mask) {
    std::string bytes = key;
    for (char& byte : bytes) byte = static_cast<char>(byte ^ mask);
    return bytes;
  };
  const std::string inner =
      c10::sha1(cat(masked(0x36), role, ":", client_nonce, server_nonce)).str();
  return c10::sha1(cat(masked(0x5c), inner)).str();
}

bool is_same_proof(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

WireWriter& WireWriter::text(std::string_view value) {
  bytes_ += size_bytes(value.size());
  bytes_ += value;
  return *this;
}

WireWriter& WireWriter::number(int64_t value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  return *this;
}

WireWriter& WireWriter::byte(uint8_t value) {
  bytes_.push_back(static_cast<char>(value));
  return *this;
}

std::optional<std::string> WireReader::text() {
  if (bytes_.size() < 4) return std::nullopt;
  const size_t size = size_of_bytes(bytes_.substr(0, 4));
  if (bytes_.size() - 4 < size) return std::nullopt;
  std::string value(bytes_.substr(4, size));
  bytes_.remove_prefix(4 + size);
  return value;
}

std::optional<int64_t> WireReader::number() {
  int64_t value = 0;
  if (bytes_.size() < sizeof(value)) return std::nullopt;
  std::memcpy(&value, bytes_.data(), sizeof(value));
  bytes_.remove_prefix(sizeof(value));
  return value;
}

std::optional<uint8_t> WireReader::byte() {
  if (bytes_.empty()) return std::nullopt;
  const auto value = static_cast<uint8_t>(bytes_[0]);
  bytes_.remove_prefix(1);
  return value;
}

std::string size_bytes(size_t size) {
  const auto small = static_cast<uint32_t>(size);
  return std::string(reinterpret_cast<const char*>(&small), sizeof(small));
}

uint32_t size_of_bytes(std::string_view four) {
  uint32_t size = 0;
  std::memcpy(&size, four.data(), sizeof(size));
  return size;
}

}  // namespace automodel::comm

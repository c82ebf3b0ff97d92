#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace automodel::comm {

// The protocol of the run's store. First both sides prove that they know the run's secret without
// sending it; then the client sends requests, each of which is answered before the next one is
// read:
//
//   client   kHello  nonce            | proof of a client
//   server                nonce proof |                    kWelcome
//   client   operation, size (4 bytes), arguments
//   server                                        size (4 bytes), result
//
// Numbers are little-endian. A text is its size (4 bytes) and its bytes.

inline constexpr std::string_view kHello = "AMSTORE1";
inline constexpr std::string_view kWelcome = "welcome!";
inline constexpr size_t kNonceBytes = 16;
inline constexpr size_t kProofBytes = 40;
inline constexpr size_t kGreetingBytes = kHello.size() + kNonceBytes;
inline constexpr size_t kReplyBytes = kNonceBytes + kProofBytes;
/// Largest size of a request or result in bytes; ranks usually exchange some kilobytes.
inline constexpr uint32_t kLargestFrame = 64U << 20;

enum class StoreOperation : uint8_t {
  kSet = 1,         ///< key, value
  kGet = 2,         ///< key, milliseconds to wait -> 1 and the value, or 0
  kHas = 3,         ///< key -> 0 or 1
  kAdd = 4,         ///< key, number -> sum
  kCompareSet = 5,  ///< key, expected, wanted -> the value then
  kErase = 6,       ///< key -> 0 or 1
  kCount = 7,       ///< -> number of keys
};

/// Random bytes that nobody can guess.
std::string random_bytes(size_t count);

/// A proof that can be computed from both nonces only with the secret. `role`: "client" or
/// "server".
std::string prove(const std::string& secret, std::string_view role, std::string_view client_nonce,
                  std::string_view server_nonce);

/// Whether two proofs are equal, in a time that does not depend on their contents.
bool is_same_proof(std::string_view a, std::string_view b);

/// Makes the bytes of a request or a result.
class WireWriter final {
 public:
  WireWriter& text(std::string_view value);
  WireWriter& number(int64_t value);
  WireWriter& byte(uint8_t value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Parses these bytes; nullopt when they end too early.
class WireReader final {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}
  std::optional<std::string> text();
  std::optional<int64_t> number();
  std::optional<uint8_t> byte();
  bool is_at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

/// The 4 bytes of a size, and back.
std::string size_bytes(size_t size);
uint32_t size_of_bytes(std::string_view four);

}  // namespace automodel::comm

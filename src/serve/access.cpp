#include "serve/access.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <array>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace automodel::serve {

namespace {

using Sha256 = std::array<unsigned char, 32>;

Sha256 sha256_of(std::string_view text) {
  Sha256 sum{};
  const int is_made =
      EVP_Digest(text.data(), text.size(), sum.data(), nullptr, EVP_sha256(), nullptr);
  AM_CHECK(is_made == 1, "no SHA-256");
  return sum;
}

template <typename Bytes>
std::string hexadecimal(const Bytes& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

bool is_port(std::string_view text) {
  return text.empty() || (text.size() > 1 && text[0] == ':' &&
                          text.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

}  // namespace

bool is_loopback_address(const std::string& address) {
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, address.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  return ::inet_pton(AF_INET6, address.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

bool names_loopback(std::string_view host) {
  const bool has_brackets = host.starts_with('[');
  const size_t end = has_brackets ? host.find(']') : std::min(host.find(':'), host.size());
  if (end == std::string_view::npos) return false;
  if (!is_port(host.substr(has_brackets ? end + 1 : end))) return false;
  const std::string name =
      to_lower(host.substr(has_brackets ? 1 : 0, end - (has_brackets ? 1 : 0)));
  if (name.find('\0') != std::string::npos) return false;
  const bool has_colon = name.find(':') != std::string::npos;
  if (has_brackets != has_colon) return false;
  return name == "localhost" || is_loopback_address(name);
}

bool same_secret(std::string_view given, std::string_view wanted) {
  const Sha256 a = sha256_of(given), b = sha256_of(wanted);
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string_view bearer_token(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (to_lower(authorization.substr(0, kScheme.size())) != kScheme) return "";
  return trim(authorization.substr(kScheme.size()));
}

std::string random_secret(size_t num_bytes) {
  std::vector<unsigned char> bytes(num_bytes);
  AM_CHECK(RAND_bytes(bytes.data(), static_cast<int>(num_bytes)) == 1, "no random numbers");
  return hexadecimal(bytes);
}

std::string policy_hash(std::string_view text) {
  const Sha256 sum = sha256_of(text);
  std::array<unsigned char, 45> coded{};  // 44 characters and an end
  EVP_EncodeBlock(coded.data(), sum.data(), static_cast<int>(sum.size()));
  return cat("'sha256-", reinterpret_cast<const char*>(coded.data()), "'");
}

std::string entity_tag(std::string_view bytes) {
  return cat("\"", hexadecimal(sha256_of(bytes)).substr(0, 32), "\"");
}

std::string percent_encoded(std::string_view text) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
  std::string out;
  for (const char byte : text) {
    if (kPlain.find(byte) != std::string_view::npos) {
      out += byte;
    } else {
      out += cat("%", hexadecimal(std::string(1, byte)));
    }
  }
  return out;
}

}  // namespace automodel::serve

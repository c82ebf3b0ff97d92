#include "hub/digest.h"

#include <openssl/evp.h>

#include <array>

#include "core/error.h"

namespace automodel::hub {

struct Digest::State {
  State() : context(EVP_MD_CTX_new()) {}
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  EVP_MD_CTX* context;
};

Digest::Digest(const char* name) : state_(std::make_unique<State>()) {
  const EVP_MD* algorithm = EVP_get_digestbyname(name);
  AM_CHECK(algorithm != nullptr, name);
  AM_CHECK(EVP_DigestInit_ex(state_->context, algorithm, nullptr) == 1, name);
}

Digest::~Digest() = default;
Digest::Digest(Digest&& other) noexcept = default;
Digest& Digest::operator=(Digest&& other) noexcept = default;

Digest Digest::sha256() {
  return Digest("sha256");
}

Digest Digest::git_sha1(uint64_t num_bytes) {
  Digest digest("sha1");
  std::string header = cat("blob ", num_bytes);
  header.push_back('\0');
  digest.add(header);
  return digest;
}

void Digest::add(std::string_view bytes) {
  AM_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string Digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int size = 0;
  AM_CHECK(EVP_DigestFinal_ex(state_->context, bytes.data(), &size) == 1);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

}  // namespace automodel::hub

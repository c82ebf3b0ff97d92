#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace automodel::hub {

/// A checksum as the hub names files by it: large ones (LFS) by the sha256 of their bytes, others
/// by git's sha1 of "blob SIZE\0" and their bytes.
class Digest final {
 public:
  static Digest sha256();
  static Digest git_sha1(uint64_t num_bytes);
  ~Digest();
  Digest(Digest&& other) noexcept;
  Digest& operator=(Digest&& other) noexcept;

  void add(std::string_view bytes);
  /// Lower-case hexadecimal. Called once, at the end.
  std::string finish();

 private:
  struct State;
  explicit Digest(const char* name);

  std::unique_ptr<State> state_;
};

}  // namespace automodel::hub

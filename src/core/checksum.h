#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace automodel {

/// XXH3, 64 bits, over bytes that come piece by piece.
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

/// The same of bytes that are there at once.
uint64_t checksum_of(std::string_view bytes);

}  // namespace automodel

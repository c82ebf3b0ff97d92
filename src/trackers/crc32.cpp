#include "trackers/crc32.h"

#include <array>

namespace automodel::trackers {

namespace {

using Table = std::array<uint32_t, 256>;

/// The remainders of all bytes by a polynomial whose bits are reversed.
constexpr Table table_of(uint32_t polynomial) {
  Table table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? polynomial : 0);
    table[byte] = rest;
  }
  return table;
}

uint32_t remainder_of(std::string_view bytes, const Table& table) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 255];
  }
  return ~crc;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr Table kTable = table_of(0x82F63B78);
  return remainder_of(bytes, kTable);
}

uint32_t crc32(std::string_view bytes) {
  static constexpr Table kTable = table_of(0xEDB88320);
  return remainder_of(bytes, kTable);
}

}  // namespace automodel::trackers

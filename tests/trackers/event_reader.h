#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"

namespace automodel::test {

/// CRC-32C bit by bit, from its definition.
inline uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82F63B78U : crc >> 1;
  }
  return ~crc;
}

/// The records of a TFRecord file, its checksums held against their definition.
inline std::vector<std::string> read_event_records(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<std::string> records;
  size_t at = 0;
  const auto number = [&](size_t size) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      value |= uint64_t{static_cast<unsigned char>(bytes.at(at + i))} << (8 * i);
    }
    at += size;
    return value;
  };
  const auto expect_checksum = [&](std::string_view of) {
    const uint32_t crc = slow_crc32c(of);
    EXPECT_EQ(number(4), uint32_t{((crc >> 15) | (crc << 17)) + 0xA282EAD8U}) << path;
  };
  while (at < bytes.size()) {
    const std::string length_bytes = bytes.substr(at, 8);
    const size_t length = number(8);
    expect_checksum(length_bytes);
    records.push_back(bytes.substr(at, length));
    at += length;
    expect_checksum(records.back());
  }
  return records;
}

/// A field of a message of protobuf's: a number, or the bytes of a text, a message or packed
/// numbers.
struct WireField {
  uint64_t value = 0;
  std::string_view bytes;

  double real() const { return std::bit_cast<double>(value); }
  std::vector<double> packed_reals() const {
    std::vector<double> all(bytes.size() / sizeof(double));
    std::memcpy(all.data(), bytes.data(), all.size() * sizeof(double));
    return all;
  }
};

/// The fields of a message by their numbers.
inline std::multimap<int, WireField> read_fields(std::string_view message) {
  std::multimap<int, WireField> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= uint64_t{byte & 127U} << shift;
      if (byte < 128) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    WireField field;
    if ((key & 7) == 0) {
      field.value = varint();
    } else if ((key & 7) == 2) {
      const size_t size = varint();
      field.bytes = message.substr(at, size);
      at += size;
    } else {
      const size_t size = (key & 7) == 1 ? 8 : 4;
      std::memcpy(&field.value, message.substr(at, size).data(), size);
      at += size;
    }
    fields.emplace(static_cast<int>(key >> 3), field);
  }
  return fields;
}

}  // namespace automodel::test

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
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

}  // namespace automodel::test

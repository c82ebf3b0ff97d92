#pragma once

#include <cstdint>
#include <string_view>

namespace automodel::trackers {

/// CRC-32C (Castagnoli) of bytes, which TFRecord files have.
uint32_t crc32c(std::string_view bytes);

/// CRC-32 (of zlib, IEEE 802.3) of bytes, which W&B's files have.
uint32_t crc32(std::string_view bytes);

}  // namespace automodel::trackers

#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace automodel::checkpoint {

/// One tensor of a safetensors file. Its elements are row by row in bytes [begin, end) of the file.
struct TensorEntry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;

  int64_t numel() const;
  uint64_t num_bytes() const { return end - begin; }
};

/// Pairs of the header's `__metadata__`, in the file's order.
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// The contents of a safetensors header.
struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  ///< in the order of their bytes
  Metadata metadata;
  uint64_t num_header_bytes = 0;  ///< including the length field: where the first tensor begins
};

/// The longest header that is read (the format's own limit).
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

/// Reads the length field, the first 8 bytes of a file of `file_size` bytes. Returns the header's
/// number of bytes, including this field. Throws InputError whose text begins with `name`.
uint64_t safetensors_header_length(std::span<const std::byte> first_bytes, uint64_t file_size,
                                   std::string_view name);

/// Parses a header and checks all of it: JSON, known dtypes, shapes without negative dims or
/// overflow, byte counts that match shape and dtype, tensors that follow each other without gap or
/// overlap from the header to the file's end, unique names. `bytes` begins at the file's first byte
/// and holds at least the header. Throws InputError "NAME: tensor 'x': what is wrong".
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> bytes, uint64_t file_size,
                                           std::string_view name);

/// Formats the header of tensors that follow each other in the given order (it computes their
/// offsets), padded with spaces to 8 bytes, after its length field. Equal inputs give equal bytes.
std::string format_safetensors_header(std::span<const TensorEntry> tensors,
                                      const Metadata& metadata);

}  // namespace automodel::checkpoint

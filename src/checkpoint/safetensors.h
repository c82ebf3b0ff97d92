#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/safetensors_header.h"
#include "checkpoint/tensor_source.h"
#include "core/checksum.h"
#include "core/file.h"
#include "tensor/shard_spec.h"

namespace automodel::checkpoint {

/// A safetensors file, checked when opened and kept open for the object's lifetime. Several threads
/// may read at the same time.
class SafetensorsFile final {
 public:
  /// Throws InputError, naming the file (and the tensor), for anything wrong with the file.
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t num_bytes() const { return num_bytes_; }
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const Metadata& metadata() const { return header_.metadata; }
  std::optional<std::string> metadata(std::string_view key) const;
  uint64_t num_header_bytes() const { return header_.num_header_bytes; }

  const TensorEntry* find(std::string_view name) const;  ///< nullptr when absent
  const TensorEntry& at(std::string_view name) const;    ///< InputError when absent

  /// Reads elements [first, first + out.numel()) of a tensor directly into `out` (contiguous, any
  /// device), converting piece by piece when dtypes differ. Throws InputError.
  void read_elements(const TensorEntry& entry, int64_t first, at::Tensor out) const;

  /// Reads a shard of a tensor. `out` is one-dimensional with spec.numel() elements; spec's global
  /// shape must have as many elements as the tensor.
  void read_shard(const TensorEntry& entry, const tensor::ShardSpec& spec, at::Tensor out) const;

  /// The whole tensor in new CPU memory, in the file's dtype.
  at::Tensor read(std::string_view name) const;

  /// Checksums of a tensor's bytes, and of the header with its length field. `progress` counts
  /// bytes read.
  uint64_t checksum(const TensorEntry& entry, ByteCounter* progress = nullptr) const;
  uint64_t header_checksum() const;

 private:
  void read_bytes(uint64_t offset, std::span<std::byte> out) const;

  std::string path_;
  int fd_ = -1;
  uint64_t num_bytes_ = 0;
  SafetensorsHeader header_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

/// Writes a safetensors file from front to back, holding at most a piece of it. finish() syncs the
/// file and gives it its name; before that, and after any failure, no file of that name exists.
class SafetensorsWriter final {
 public:
  /// `tensors`: in the order in which their values will be written. `progress` counts bytes
  /// written. Throws InputError "cannot write ...".
  SafetensorsWriter(const std::string& path, std::span<const TensorInfo> tensors,
                    const Metadata& metadata, ByteCounter* progress = nullptr);

  /// Appends the file's next elements (any device, any shape, contiguous), converted to the dtype
  /// of the declared tensor that they belong to, beyond which they must not reach. Throws
  /// InputError, e.g. "cannot write PATH: No space left on device".
  void write(const at::Tensor& values);

  /// Syncs the file and renames it into place, after all values were written. Returns its record.
  FileRecord finish();

 private:
  void append(std::span<const std::byte> bytes);

  std::string path_;
  AtomicFile file_;
  ByteCounter* progress_;
  std::vector<TensorInfo> tensors_;
  size_t current_ = 0;           // index of the tensor being written
  int64_t current_written_ = 0;  // number of its elements already written
  uint64_t num_bytes_ = 0;
  Checksum checksum_;
};

/// Writes whole tensors to one file, in the given order.
FileRecord write_safetensors(const std::string& path,
                             std::span<const std::pair<std::string, at::Tensor>> tensors,
                             const Metadata& metadata);

}  // namespace automodel::checkpoint

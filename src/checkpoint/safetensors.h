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

/// A safetensors file, checked when it is opened and open for reading as long as the object lives.
/// Reads may come from several threads at once.
class SafetensorsFile final {
 public:
  /// Throws InputError with the file's name (and the tensor's) for anything wrong with it.
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

  /// Reads elements [first, first + out.numel()) of a tensor straight into `out` (contiguous, any
  /// device), converting when dtypes differ, a piece at a time. Throws InputError.
  void read_elements(const TensorEntry& entry, int64_t first, at::Tensor out) const;

  /// Reads a shard of a tensor: out is one-dimensional with spec.numel() elements, and spec's
  /// global shape has as many elements as the tensor.
  void read_shard(const TensorEntry& entry, const tensor::ShardSpec& spec, at::Tensor out) const;

  /// The whole tensor in new CPU memory, in the file's dtype.
  at::Tensor read(std::string_view name) const;

  /// Checksum of a tensor's bytes, and of the header with its length field. `progress` counts what
  /// has been read.
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

/// Writes a safetensors file front to back without ever holding more than a piece of it. The file
/// gets its name when finish() has synced it; until then, and after any failure, nothing is there.
class SafetensorsWriter final {
 public:
  /// The tensors in the order in which their values will come. Throws InputError "cannot write
  /// ...". `progress` counts what has been written.
  SafetensorsWriter(const std::string& path, std::span<const TensorInfo> tensors,
                    const Metadata& metadata, ByteCounter* progress = nullptr);

  /// Appends the next elements of the file (any device, any shape, contiguous), converted to the
  /// dtype of the declared tensor they belong to. They may not reach beyond that tensor.
  /// Throws InputError, e.g. "cannot write PATH: No space left on device".
  void write(const at::Tensor& values);

  /// Syncs the file and renames it into place; all values have been written. Returns its record.
  FileRecord finish();

 private:
  void append(std::span<const std::byte> bytes);

  std::string path_;
  AtomicFile file_;
  ByteCounter* progress_;
  std::vector<TensorInfo> tensors_;
  size_t current_ = 0;           // tensor that is being written
  int64_t current_written_ = 0;  // elements of it
  uint64_t num_bytes_ = 0;
  Checksum checksum_;
};

/// Writes whole tensors to one file, in the given order.
FileRecord write_safetensors(const std::string& path,
                             std::span<const std::pair<std::string, at::Tensor>> tensors,
                             const Metadata& metadata);

}  // namespace automodel::checkpoint

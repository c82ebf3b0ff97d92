#include "checkpoint/safetensors.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "checkpoint/staged_read.h"
#include "core/error.h"
#include "core/file.h"
#include "tensor/shard_runs.h"

namespace automodel::checkpoint {

namespace {

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

at::Tensor flat(const at::Tensor& tensor) {
  AM_CHECK(tensor.is_contiguous());
  return tensor.view({-1});
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) throw InputError(cat("cannot read ", path, ": ", std::strerror(errno)));
  try {
    struct stat info {};
    if (::fstat(fd_, &info) != 0 || S_ISDIR(info.st_mode)) {
      throw InputError(cat("cannot read ", path, ": not a file"));
    }
    num_bytes_ = static_cast<uint64_t>(info.st_size);
    std::array<std::byte, 8> first{};
    read_bytes(0, std::span(first).first(std::min<uint64_t>(8, num_bytes_)));
    std::vector<std::byte> bytes(safetensors_header_length(first, num_bytes_, path));
    read_bytes(0, bytes);
    header_ = parse_safetensors_header(bytes, num_bytes_, path);
  } catch (...) {
    ::close(fd_);
    throw;
  }
  for (size_t i = 0; i < header_.tensors.size(); ++i) by_name_[header_.tensors[i].name] = i;
}

SafetensorsFile::~SafetensorsFile() {
  if (fd_ >= 0) ::close(fd_);
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      num_bytes_(other.num_bytes_),
      header_(std::move(other.header_)),
      by_name_(std::move(other.by_name_)) {}

std::optional<std::string> SafetensorsFile::metadata(std::string_view key) const {
  for (const auto& [name, value] : header_.metadata) {
    if (name == key) return value;
  }
  return std::nullopt;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

const TensorEntry& SafetensorsFile::at(std::string_view name) const {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) throw InputError(cat(path_, ": no tensor '", name, "' in it"));
  return *entry;
}

void SafetensorsFile::read_bytes(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw InputError(cat("cannot read ", path_, ": ", std::strerror(errno)));
    if (count == 0) throw InputError(cat("cannot read ", path_, ": it became shorter meanwhile"));
    out = out.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

void SafetensorsFile::read_elements(const TensorEntry& entry, int64_t first, at::Tensor out) const {
  AM_CHECK(first >= 0 && first + out.numel() <= entry.numel(), entry.name);
  read_shard(entry, {{entry.numel()}, {0}, {entry.numel()}, first, first + out.numel()}, flat(out));
}

void SafetensorsFile::read_shard(const TensorEntry& entry, const tensor::ShardSpec& spec,
                                 at::Tensor out) const {
  AM_CHECK(spec.global_numel() == entry.numel() && out.numel() == spec.numel(), entry.name);
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const uint64_t item_bytes = c10::elementSize(entry.dtype);
  const auto offset_of = [&](int64_t element) {
    return entry.begin + static_cast<uint64_t>(element) * item_bytes;
  };
  if (out.is_cpu() && out.scalar_type() == entry.dtype) {
    for (tensor::ShardRunCursor runs(spec); !runs.is_at_end(); runs.step()) {
      const tensor::ShardRun& run = runs.run();
      read_bytes(offset_of(run.global), bytes_of(out.narrow(0, run.local, run.numel)));
    }
    return;
  }
  const int64_t piece = std::min(piece_for(out), std::max<int64_t>(out.numel(), 1));
  const at::Tensor staging = at::empty({piece}, at::TensorOptions().dtype(entry.dtype));
  read_by_staging(spec, staging, out, [&](int64_t first, int64_t count, int64_t place) {
    read_bytes(offset_of(first), bytes_of(staging.narrow(0, place, count)));
  });
}

at::Tensor SafetensorsFile::read(std::string_view name) const {
  const TensorEntry& entry = at(name);
  at::Tensor out = at::empty(entry.shape, at::TensorOptions().dtype(entry.dtype));
  read_elements(entry, 0, out);
  return out;
}

uint64_t SafetensorsFile::checksum(const TensorEntry& entry, ByteCounter* progress) const {
  std::vector<std::byte> buffer(std::min<uint64_t>(entry.num_bytes(), uint64_t{1} << 20));
  Checksum checksum;
  for (uint64_t position = entry.begin; position < entry.end;) {
    const uint64_t count = std::min<uint64_t>(buffer.size(), entry.end - position);
    read_bytes(position, std::span(buffer).first(count));
    checksum.add(std::span(buffer).first(count));
    position += count;
    if (progress != nullptr) *progress += count;
  }
  return checksum.value();
}

uint64_t SafetensorsFile::header_checksum() const {
  std::vector<std::byte> bytes(header_.num_header_bytes);
  read_bytes(0, bytes);
  Checksum checksum;
  checksum.add(bytes);
  return checksum.value();
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::span<const TensorInfo> tensors,
                                     const Metadata& metadata, ByteCounter* progress)
    : path_(path), file_(path), progress_(progress), tensors_(tensors.begin(), tensors.end()) {
  std::vector<TensorEntry> entries;
  for (const TensorInfo& tensor : tensors_)
    entries.push_back({tensor.name, tensor.dtype, tensor.shape});
  const std::string header = format_safetensors_header(entries, metadata);
  append(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  // Piece by piece, so that a slow disk shows progress.
  constexpr size_t kPieceBytes = size_t{64} << 20;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
    checksum_.add(piece);
    file_.write({reinterpret_cast<const char*>(piece.data()), piece.size()});
    num_bytes_ += piece.size();
    if (progress_ != nullptr) *progress_ += piece.size();
    bytes = bytes.subspan(piece.size());
  }
}

void SafetensorsWriter::write(const at::Tensor& values) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const at::Tensor source = flat(values);
  while (current_ < tensors_.size() && current_written_ == tensors_[current_].numel()) {
    ++current_;
    current_written_ = 0;
  }
  if (source.numel() == 0) return;
  AM_CHECK(current_ < tensors_.size(), "values after the last tensor of ", path_);
  const TensorInfo& tensor = tensors_[current_];
  AM_CHECK(current_written_ + source.numel() <= tensor.numel(), tensor.name);
  if (source.is_cpu() && source.scalar_type() == tensor.dtype) {
    append(bytes_of(source));
  } else {
    const int64_t piece = std::min(piece_for(source), source.numel());
    const at::Tensor staging = at::empty({piece}, at::TensorOptions().dtype(tensor.dtype));
    for (int64_t first = 0; first < source.numel(); first += piece) {
      const int64_t count = std::min(piece, source.numel() - first);
      const at::Tensor part = staging.narrow(0, 0, count);
      part.copy_(source.narrow(0, first, count));
      append(bytes_of(part));
    }
  }
  current_written_ += source.numel();
}

FileRecord SafetensorsWriter::finish() {
  while (current_ < tensors_.size() && current_written_ == tensors_[current_].numel()) {
    ++current_;
    current_written_ = 0;
  }
  AM_CHECK(current_ == tensors_.size(), "values of ", path_, " are missing");
  file_.finish();
  return {path_, num_bytes_, checksum_.value()};
}

FileRecord write_safetensors(const std::string& path,
                             std::span<const std::pair<std::string, at::Tensor>> tensors,
                             const Metadata& metadata) {
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) {
    infos.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  }
  SafetensorsWriter writer(path, infos, metadata);
  for (const auto& [name, tensor] : tensors) writer.write(tensor);
  return writer.finish();
}

}  // namespace automodel::checkpoint

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace automodel::distributed {

/// Zeroed flat memory.
at::Tensor flat_zeros(int64_t numel, at::ScalarType dtype, at::Device device);

/// A view of flat memory with a version counter of its own: set_ does not share it as view() does,
/// so writes to the buffer are never seen as in-place changes of a parameter.
at::Tensor alias(const at::Tensor& buffer, int64_t offset, at::IntArrayRef sizes);

/// Memory of buffers that were released, for the next of the same size: blocks are alike, so a few
/// pieces serve all of them, and fresh pages cost more than the copying done in them.
class FlatPool final {
 public:
  /// At most `num_kept` released pieces of a size stay: as many as are in use together, which are
  /// parameters, gradients, gradients being reduced, and parameters gathered ahead.
  explicit FlatPool(int64_t num_kept = kWithoutPrefetch)
      : num_kept_(static_cast<size_t>(num_kept)) {}
  static constexpr int64_t kWithoutPrefetch = 3;

  at::DataPtr take(const at::Tensor& like);
  void give(at::DataPtr piece, size_t bytes);
  /// Pieces that had to be made anew; constant from the second step on.
  int64_t num_made() const { return num_made_; }

 private:
  size_t num_kept_;
  std::map<size_t, std::vector<at::DataPtr>> free_;  // by bytes; a pool has one device
  int64_t num_made_ = 0;
};

/// Flat memory that comes and goes below tensors that stay: their storage is emptied and refilled.
/// While it is away, reading such a tensor throws c10::Error with the text given.
class FlatBuffer final {
 public:
  FlatBuffer() = default;
  /// There at once, zeroed. `absent_text` is what a reader is told while it is away.
  FlatBuffer(int64_t numel, at::ScalarType dtype, at::Device device, std::string absent_text);

  const at::Tensor& flat() const { return flat_; }
  bool is_defined() const { return flat_.defined(); }
  bool is_there() const { return is_there_; }
  size_t bytes() const { return bytes_; }

  /// Memory with any contents.
  void allocate(FlatPool& pool);
  void allocate_zeroed(FlatPool& pool);
  void release(FlatPool& pool);

 private:
  at::Tensor flat_;
  size_t bytes_ = 0;
  std::string absent_text_;
  bool is_there_ = false;
};

}  // namespace automodel::distributed

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace automodel::distributed {

/// Zeroed flat memory.
at::Tensor flat_zeros(int64_t numel, at::ScalarType dtype, at::Device device);

/// A view of flat memory with its own version counter, which view() would share: autograd does not
/// take writes to the buffer for in-place changes of a parameter.
at::Tensor alias(const at::Tensor& buffer, int64_t offset, at::IntArrayRef sizes);

/// Keeps the memory of released buffers for the next buffer of the same size. Blocks are alike, so
/// a few pieces serve all of them, and fresh pages cost more than the copying into them.
class FlatPool final {
 public:
  /// Keeps at most `num_kept` released pieces of each size: as many as are in use together, for
  /// parameters, gradients, gradients being reduced and parameters gathered ahead.
  explicit FlatPool(int64_t num_kept = kWithoutPrefetch)
      : num_kept_(static_cast<size_t>(num_kept)) {}
  static constexpr int64_t kWithoutPrefetch = 3;

  at::DataPtr take(const at::Tensor& like);
  void give(at::DataPtr piece, size_t bytes);
  /// Number of pieces that were newly allocated; constant from the second step on.
  int64_t num_made() const { return num_made_; }

 private:
  size_t num_kept_;
  std::map<size_t, std::vector<at::DataPtr>> free_;  // by bytes; all on one device
  int64_t num_made_ = 0;
};

/// Flat memory that is released and allocated again under tensors that persist: their storage is
/// emptied and refilled. While it is released, reading such a tensor throws c10::Error with the
/// given text.
class FlatBuffer final {
 public:
  FlatBuffer() = default;
  /// Allocated on construction, zeroed. `absent_text`: the error's text while it is released.
  FlatBuffer(int64_t numel, at::ScalarType dtype, at::Device device, std::string absent_text);

  const at::Tensor& flat() const { return flat_; }
  bool is_defined() const { return flat_.defined(); }
  bool is_there() const { return is_there_; }
  size_t bytes() const { return bytes_; }

  /// Allocates memory; its contents are undefined.
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

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace automodel::recipes {

/// Host memory for copies of a device's tensors. It is page-locked, which the device fills several
/// times as fast, unless the system gives none. The allocator of such memory rounds up to powers
/// of two, so it is taken in blocks of that size: little more than the tensors need.
class HostBlocks final {
 public:
  /// `num_bytes`: of all tensors that will be asked for. A CPU's copies lie in the usual memory,
  /// which the next save finds again.
  HostBlocks(int64_t num_bytes, at::Device device) : num_left_(num_bytes), device_(device) {}

  /// A contiguous tensor on the CPU, not set.
  at::Tensor take(at::IntArrayRef sizes, at::ScalarType dtype);

  /// The size of a block for a tensor of `needed` bytes when `left` are to come, itself among
  /// them: the greatest power of two up to `left`, or the least that holds the tensor.
  static int64_t block_size(int64_t needed, int64_t left);

  /// What a tensor takes of a block, so that the next one begins at a multiple of 64 bytes.
  static int64_t room_of(int64_t num_bytes) { return (num_bytes + 63) / 64 * 64; }

 private:
  int64_t num_left_;
  at::Device device_;
  at::Tensor block_;
  int64_t used_ = 0;
};

/// Gives back to the system what page-locked memory of a device's copies nobody uses any more.
void release_host_blocks(at::Device device);

}  // namespace automodel::recipes

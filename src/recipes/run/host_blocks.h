#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace automodel::recipes {

/// Host memory for copies of tensors. For a device's it is page-locked, which the device fills
/// several times as fast, unless the system gives none. The allocator of such memory rounds up to
/// powers of two, so it is taken in blocks of that size: little more than the tensors need. It
/// keeps what is not used any more for the next save: locking pages holds up the thread that
/// trains. A CPU's copies lie in one block of just their size.
class HostBlocks final {
 public:
  /// `num_bytes`: of all tensors that will be asked for. `kept` is a CPU's block, made here unless
  /// it is large enough: the caller keeps it from save to save, since the system takes longer to
  /// give memory than copies do to fill it.
  HostBlocks(int64_t num_bytes, at::Device device, at::Tensor& kept);

  /// Asks the system for each page of a block that was never used, so that copies need not wait for
  /// them.
  static void touch(const at::Tensor& block);

  /// A contiguous tensor on the CPU, not set.
  at::Tensor take(at::IntArrayRef sizes, at::ScalarType dtype);

  /// The size of a block for a tensor of `needed` bytes when `left` are to come, itself among
  /// them: the greatest power of two up to `left`, or the least that holds the tensor.
  static int64_t block_size(int64_t needed, int64_t left);

  /// What a tensor takes of a block, so that the next one begins at a multiple of 64 bytes.
  static int64_t room_of(int64_t num_bytes) { return (num_bytes + 63) / 64 * 64; }

 private:
  int64_t num_left_;
  at::Tensor block_;
  int64_t used_ = 0;
};

}  // namespace automodel::recipes

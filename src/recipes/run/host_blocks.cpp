#include "recipes/run/host_blocks.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

namespace automodel::recipes {

int64_t HostBlocks::block_size(int64_t needed, int64_t left) {
  const auto least = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(needed, 1)));
  const auto greatest = std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(left, 1)));
  return static_cast<int64_t>(std::max(least, greatest));
}

namespace {

at::Tensor block_of(int64_t num_bytes) {
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  try {
    return at::empty({num_bytes}, bytes.pinned_memory(true));
  } catch (const c10::Error&) {  // the system's limit of locked memory
    return at::empty({num_bytes}, bytes);
  }
}

}  // namespace

HostBlocks::HostBlocks(int64_t num_bytes, at::Device device, at::Tensor& kept)
    : num_left_(num_bytes) {
  if (!device.is_cpu()) return;
  if (!kept.defined() || kept.numel() < num_bytes) {
    kept = at::Tensor();  // first, not to have both
    kept = at::empty({num_bytes}, at::TensorOptions().dtype(at::kByte));
  }
  block_ = kept;
}

void HostBlocks::touch(const at::Tensor& block) {
  constexpr int64_t kPageBytes = 4096;
  volatile uint8_t* const bytes = block.data_ptr<uint8_t>();
  for (int64_t i = 0; i < block.numel(); i += kPageBytes) bytes[i] = 0;
}

at::Tensor HostBlocks::take(at::IntArrayRef sizes, at::ScalarType dtype) {
  const int64_t numel =
      std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  const int64_t num_bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  if (!block_.defined() || used_ + num_bytes > block_.size(0)) {
    block_ = block_of(block_size(num_bytes, num_left_));
    used_ = 0;
  }
  const at::Tensor part = block_.narrow(0, used_, num_bytes).view(dtype).view(sizes);
  used_ += room_of(num_bytes);
  num_left_ -= room_of(num_bytes);
  return part;
}

}  // namespace automodel::recipes

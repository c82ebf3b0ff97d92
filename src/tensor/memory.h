#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::tensor {

/// A zeroed one-dimensional CPU tensor with its own memory mapping, aligned to at least 64 bytes,
/// with huge pages requested from 4 MiB on. Freed memory returns to the system at once (glibc would
/// keep it), so that sharding really saves memory.
at::Tensor mapped_zeros(int64_t numel, at::ScalarType dtype);

/// A host tensor copied to a device; the same tensor if it is there already. For CUDA devices it
/// copies from page-locked memory and does not wait.
at::Tensor moved_to(const at::Tensor& tensor, at::Device device);

/// Peak resident memory of this process, in bytes.
uint64_t peak_resident_bytes();

}  // namespace automodel::tensor

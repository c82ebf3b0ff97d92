#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::tensor {

/// A zeroed one-dimensional CPU tensor over its own mapped memory, 64-byte aligned at least, with
/// huge pages asked for when it is 4 MiB or more. Freed memory returns to the system at once
/// (glibc would keep it), so that sharding really saves memory.
at::Tensor mapped_zeros(int64_t numel, at::ScalarType dtype);

/// A tensor of the host on a device; itself where it is there already. CUDA devices copy it from
/// page-locked memory while the host goes on.
at::Tensor moved_to(const at::Tensor& tensor, at::Device device);

/// Peak and present resident memory of this process, in bytes.
uint64_t peak_resident_bytes();
uint64_t resident_bytes();

}  // namespace automodel::tensor

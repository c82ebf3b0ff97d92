#include "tensor/memory.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "core/divide.h"
#include "core/error.h"

namespace automodel::tensor {

at::Tensor mapped_zeros(int64_t numel, at::ScalarType dtype) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t bytes = static_cast<size_t>(numel) * c10::elementSize(dtype);
  const size_t mapped =
      bytes >= 2 * kHugePage ? round_up(bytes, kHugePage) : std::max<size_t>(bytes, 1);
  void* memory =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw InputError(cat("cannot allocate ", format_bytes(mapped), ": ", std::strerror(errno)));
  }
  // Not of the last, partly used one: it would take the rest of its 2 MiB too.
  if (bytes >= 2 * kHugePage) ::madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return at::from_blob(
      memory, {numel}, [mapped](void* data) { ::munmap(data, mapped); },
      at::TensorOptions().dtype(dtype));
}

at::Tensor moved_to(const at::Tensor& tensor, at::Device device) {
  if (!device.is_cuda() || !tensor.is_cpu()) return tensor.to(device);
  return tensor.pin_memory().to(device, /*non_blocking=*/true);
}

uint64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace automodel::tensor

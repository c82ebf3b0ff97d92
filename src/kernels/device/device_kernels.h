#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>

#include "kernels/device/kernel_table.h"

namespace automodel::kernels::device {

/// The kernels for the device on which all defined tensors lie, if there are any, the tensors are
/// all float32 or all bfloat16, and no PlainPathScope is active; null else. The variable
/// AUTOMODEL_DEVICE_KERNELS=plain takes them away.
const DeviceKernels* kernels_for(std::initializer_list<at::Tensor> tensors);

/// [num_partials, width] float32 numbers on the tensor's device, not set, for `rows` rows of work,
/// of which a team takes one or more.
at::Tensor partials_for(int64_t most_partials, const at::Tensor& tensor, int64_t rows,
                        int64_t width);

/// During its lifetime this thread's tensors on the CPU go by these kernels: bodies of a device's
/// kernels that the host's compiler has compiled can be held against the plain paths by it.
class HostKernelsScope final {
 public:
  explicit HostKernelsScope(const DeviceKernels& kernels);
  ~HostKernelsScope();
  HostKernelsScope(const HostKernelsScope&) = delete;
  HostKernelsScope& operator=(const HostKernelsScope&) = delete;
};

}  // namespace automodel::kernels::device

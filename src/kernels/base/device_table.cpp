#include "kernels/base/device_table.h"

#include <ATen/ATen.h>

#include <map>
#include <mutex>
#include <utility>

namespace automodel::kernels {

at::Tensor table_on(const at::Tensor& table, at::Device device) {
  if (table.device() == device) return table;
  using Key = std::pair<const at::TensorImpl*, std::pair<at::DeviceType, at::DeviceIndex>>;
  static std::mutex mutex;
  // Never freed: when the process ends, the device may be gone before it.
  static auto* const copies = new std::map<Key, at::Tensor>();
  const std::scoped_lock lock(mutex);
  at::Tensor& copy = (*copies)[{table.unsafeGetTensorImpl(), {device.type(), device.index()}}];
  if (!copy.defined()) copy = table.to(device);
  return copy;
}

}  // namespace automodel::kernels

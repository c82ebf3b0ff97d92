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
  struct Copy {
    at::Tensor table;  // held, so that no other one comes to have its address
    at::Tensor on_device;
  };
  // Never freed: when the process ends, the device may be gone before it.
  static auto* const copies = new std::map<Key, Copy>();
  const std::scoped_lock lock(mutex);
  Copy& copy = (*copies)[{table.unsafeGetTensorImpl(), {device.type(), device.index()}}];
  if (!copy.table.defined()) copy = {table, table.to(device)};
  return copy.on_device;
}

}  // namespace automodel::kernels

#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/process_group.h"

namespace automodel::comm {

/// This rank's place in a group over devices.
struct DevicePlace {
  int rank = 0;
  int size = 1;
  int device = 0;               ///< index of the CUDA device
  double timeout_seconds = 60;  ///< c10d's own, of an operation: later than DeviceWatch's
  std::string name;             ///< of the group, for NCCL's own messages
};

/// A group over NCCL, from libautomodel_cuda.so, which must be open (tensor::open_cuda). Its works'
/// wait() orders the device's present stream behind the operation and returns; the host goes on.
/// Throws UnsupportedError when the library has none.
std::shared_ptr<GroupBackend> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                           const DevicePlace& place);

/// CPU tensors through one group, tensors of devices through another of the same ranks.
std::shared_ptr<GroupBackend> route_by_device(std::shared_ptr<GroupBackend> on_cpu,
                                              std::shared_ptr<GroupBackend> on_device);

}  // namespace automodel::comm

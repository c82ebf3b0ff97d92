#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/groups/process_group.h"

namespace automodel::comm {

/// This rank's place in a group over devices.
struct DevicePlace {
  int rank = 0;
  int size = 1;
  int device = 0;               ///< index of the CUDA device
  double timeout_seconds = 60;  ///< c10d's own, per operation; later than DeviceWatch's
  std::string name;             ///< of the group, used in NCCL's messages
};

/// A group over NCCL, from libautomodel_cuda.so, which must be open (tensor::open_cuda). wait() of
/// its works makes the device's current stream wait for the operation and returns; the host does
/// not wait. Throws UnsupportedError when the library has no NCCL.
std::shared_ptr<GroupBackend> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                           const DevicePlace& place);

/// Uses one group for CPU tensors and another one, of the same ranks, for device tensors.
std::shared_ptr<GroupBackend> route_by_device(std::shared_ptr<GroupBackend> on_cpu,
                                              std::shared_ptr<GroupBackend> on_device);

}  // namespace automodel::comm

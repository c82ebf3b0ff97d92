#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tensor/kernel_graph.h"

namespace automodel::tensor {

/// The part of CUDA that CPU code calls directly. Everything else goes through ATen, whose CUDA
/// kernels are available once the library is open.
class CudaRuntime {
 public:
  virtual ~CudaRuntime() = default;
  /// Number of devices that this process may use; 0 without a driver.
  virtual int device_count() const = 0;
  /// Sets the device of all later calls of this thread.
  virtual void set_device(int device) const = 0;
  /// e.g. "NVIDIA H200".
  virtual std::string device_name(int device) const = 0;
  /// Identifies a device among all machines' devices; "" if unknown.
  virtual std::string device_identity(int device) const = 0;
  /// Memory of a device; 0 if unknown.
  virtual uint64_t total_bytes(int device) const = 0;
  /// Peak memory of tensors since the start.
  virtual uint64_t peak_allocated_bytes(int device) const = 0;
  /// Waits until the device has finished all work that it was given.
  virtual void synchronize() const = 0;
  /// A graph of kernels of this thread's device.
  virtual std::unique_ptr<KernelGraph> make_graph() const = 0;
};

/// Opens libautomodel_cuda.so, which lies beside the program, and LibTorch's CUDA libraries; they
/// stay loaded. Call it only in a process that will not fork afterwards. Throws UnsupportedError
/// with the loader's reason when they are missing.
std::unique_ptr<CudaRuntime> open_cuda();

}  // namespace automodel::tensor

#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace automodel::tensor {

/// The part of CUDA that CPU code calls by itself. Everything else goes through ATen, whose CUDA
/// kernels are there as soon as the library is open.
class CudaRuntime {
 public:
  virtual ~CudaRuntime() = default;
  /// Devices that this process may use; 0 without a driver.
  virtual int device_count() const = 0;
  /// The device of all later calls of this thread.
  virtual void set_device(int device) const = 0;
  /// e.g. "NVIDIA H200".
  virtual std::string device_name(int device) const = 0;
  /// What tells a device from all others, of other machines too; "" where it cannot be known.
  virtual std::string device_identity(int device) const = 0;
  /// The most memory that tensors took at one time since the start.
  virtual uint64_t peak_allocated_bytes(int device) const = 0;
  /// Waits until the device has done all that was asked of it.
  virtual void synchronize() const = 0;
};

/// Opens libautomodel_cuda.so beside the program, and LibTorch's CUDA libraries with it; they stay
/// loaded. Call it in a process that will not fork any more. Throws UnsupportedError with the
/// loader's reason when they are not there.
std::unique_ptr<CudaRuntime> open_cuda();

}  // namespace automodel::tensor

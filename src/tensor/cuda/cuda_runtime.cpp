#include "tensor/cuda_runtime.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

namespace automodel::tensor {

namespace {

class TorchCudaRuntime final : public CudaRuntime {
 public:
  int device_count() const override { return c10::cuda::device_count(); }

  void set_device(int device) const override {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  }

  std::string device_name(int device) const override {
    cudaDeviceProp properties{};
    return cudaGetDeviceProperties(&properties, device) == cudaSuccess ? properties.name : "";
  }

  std::string device_identity(int device) const override {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return "";
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text = std::string(properties.name) + " ";
    for (const char byte : properties.uuid.bytes) {
      const auto value = static_cast<unsigned char>(byte);
      text.push_back(kDigits[value / 16]);
      text.push_back(kDigits[value % 16]);
    }
    return text;
  }

  uint64_t total_bytes(int device) const override {
    cudaDeviceProp properties{};
    const bool is_known = cudaGetDeviceProperties(&properties, device) == cudaSuccess;
    return is_known ? uint64_t{properties.totalGlobalMem} : 0;
  }

  uint64_t peak_allocated_bytes(int device) const override {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto stats =
        c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    return static_cast<uint64_t>(stats.allocated_bytes.at(kAll).peak);
  }

  void synchronize() const override { c10::cuda::device_synchronize(); }
};

}  // namespace

}  // namespace automodel::tensor

/// What open_cuda() looks for; the caller owns the result.
extern "C" automodel::tensor::CudaRuntime* automodel_make_cuda_runtime() {
  return new automodel::tensor::TorchCudaRuntime();
}

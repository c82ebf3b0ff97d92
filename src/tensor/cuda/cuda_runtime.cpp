#include "tensor/cuda_runtime.h"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <optional>

namespace automodel::tensor {

namespace {

/// Makes a stream go on after what another was given so far.
void follow(const c10::cuda::CUDAStream& stream, const c10::cuda::CUDAStream& other) {
  at::cuda::CUDAEvent event;
  event.record(other);
  event.block(stream);
}

class TorchKernelGraph final : public KernelGraph {
 public:
  void run(const std::function<void()>& work) override {
    const c10::cuda::CUDAStream outer = c10::cuda::getCurrentCUDAStream();
    follow(stream_, outer);
    {
      const c10::cuda::CUDAStreamGuard guard(stream_);
      work();
    }
    follow(outer, stream_);
  }

  void record(const std::function<void()>& work) override {
    graph_.emplace();
    // The graph has memory of its own: what the allocator holds for other work would stay beside
    // it.
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    // Other threads go on as they like: one of them may save a checkpoint.
    pool_ = at::cuda::graph_pool_handle();
    graph_->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      abandon();
      throw;
    }
    try {
      graph_->capture_end();
    } catch (const c10::Error&) {
      give_back_pool();
      throw;
    }
  }

  void replay() override { graph_->replay(); }
  void forget() override { graph_.reset(); }

 private:
  /// Ends a recording that failed, so that the stream computes again.
  void abandon() {
    try {
      graph_->capture_end();
    } catch (const c10::Error&) {
      give_back_pool();
    }
    graph_.reset();
  }

  /// capture_end() leaves the allocator recording where it throws.
  void give_back_pool() const {
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(stream_.device_index(), pool_);
      c10::cuda::CUDACachingAllocator::releasePool(stream_.device_index(), pool_);
    } catch (const c10::Error&) {
      // It had ended that before it threw.
    }
  }

  c10::cuda::CUDAStream stream_ = c10::cuda::getStreamFromPool();
  at::cuda::MempoolId_t pool_;
  std::optional<at::cuda::CUDAGraph> graph_;
};

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

  std::unique_ptr<KernelGraph> make_graph() const override {
    return std::make_unique<TorchKernelGraph>();
  }
};

}  // namespace

}  // namespace automodel::tensor

/// What open_cuda() looks for; the caller owns the result.
extern "C" automodel::tensor::CudaRuntime* automodel_make_cuda_runtime() {
  return new automodel::tensor::TorchCudaRuntime();
}

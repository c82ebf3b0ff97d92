#include "kernels/device/cuda/current_stream.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace automodel::kernels::device {

void* current_cuda_stream() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

void check_cuda_launch() {
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

int64_t num_cuda_processors() {
  return at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
}

int cuda_generation() {
  return at::cuda::getCurrentDeviceProperties()->major;
}

}  // namespace automodel::kernels::device

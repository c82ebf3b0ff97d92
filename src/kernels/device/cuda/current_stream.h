#pragma once

#include <cstdint>

namespace automodel::kernels::device {

/// PyTorch's current stream of the current device, a cudaStream_t.
void* current_cuda_stream();
/// Throws c10::Error with CUDA's text when the launch before it has failed.
void check_cuda_launch();
/// Multiprocessors of the current device.
int64_t num_cuda_processors();
/// The current device's compute capability, the number before the point.
int cuda_generation();

}  // namespace automodel::kernels::device

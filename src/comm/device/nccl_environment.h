#pragma once

#include <array>

namespace automodel::comm {

/// Environment variables that c10d reads when it makes a group over NCCL. By default its threads
/// end the process, with their own text, when an operation takes too long, a device fails or they
/// are idle. Here DeviceWatch handles these cases; setting the variables to "0" is the only way to
/// turn c10d's handling off. They are set before the process has other threads, unless the user has
/// set them.
inline constexpr std::array<const char*, 4> kNcclSwitches = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_DUMP_ON_TIMEOUT",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS"};

}  // namespace automodel::comm

#pragma once

#include <array>

namespace automodel::comm {

/// What c10d reads of the environment when a group over NCCL is made. Its threads would end the
/// process, with a text of their own, when an operation takes too long, a device fails or they have
/// been idle; that is DeviceWatch's here, and these variables, each "0", are the only way to say
/// so. They are set before the process has any other thread, unless the user has set them.
inline constexpr std::array<const char*, 4> kNcclSwitches = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_DUMP_ON_TIMEOUT",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS"};

}  // namespace automodel::comm

#pragma once

#include <c10/core/Device.h>

#include <exception>
#include <functional>
#include <memory>

#include "comm/groups/process_group.h"
#include "core/reporter.h"
#include "launcher/local_ranks.h"
#include "recipes/read/sections.h"
#include "tensor/cuda_runtime.h"

namespace automodel::recipes {

/// The device that a rank computes on.
struct RankDevice {
  at::Device device = at::kCPU;
  std::unique_ptr<tensor::CudaRuntime> cuda;
};

struct DeviceRequest {
  bool is_wanted = false;    ///< the recipe or the command line asks for one; else the CPU
  bool is_demanded = false;  ///< the CPU is not acceptable instead
  int local_rank = 0;        ///< number of this rank on its machine
};

using OpenCuda = std::function<std::unique_ptr<tensor::CudaRuntime>()>;

/// Chooses the ranks' devices: a CUDA device of its own for every rank of the group, or, after a
/// warning, the CPU for all when no rank has one. A rank takes the device of its local rank's
/// number, or the only visible one (srun shows each task its own). Every rank calls it, and all
/// return or throw alike. Throws UserError with status 4 when only some ranks have a device, one
/// cannot be used, or two ranks have the same; UnsupportedError when one is demanded and no rank
/// has any. The process must not fork after `open` was called.
RankDevice agree_on_device(const DeviceRequest& request, const comm::ProcessGroup& group,
                           const OpenCuda& open, Reporter& reporter);

/// Makes the products of this process as precise as a recipe wants them on `device`.
void set_matmul_precision(MatmulPrecision precision, const at::Device& device, Reporter& reporter);

/// The text and exit status (README.md has the table) of an error that ends a rank.
launcher::RankOutcome outcome_of(const std::exception& error);

}  // namespace automodel::recipes

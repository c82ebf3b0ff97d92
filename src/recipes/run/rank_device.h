#pragma once

#include <c10/core/Device.h>

#include <exception>
#include <functional>
#include <memory>

#include "comm/process_group.h"
#include "core/reporter.h"
#include "launcher/local_ranks.h"
#include "tensor/cuda_runtime.h"

namespace automodel::recipes {

/// Where a rank computes.
struct RankDevice {
  at::Device device = at::kCPU;
  std::unique_ptr<tensor::CudaRuntime> cuda;
};

struct DeviceRequest {
  bool is_wanted = false;    ///< by the recipe or the command line; else the CPU is taken
  bool is_demanded = false;  ///< the CPU will not do
  int local_rank = 0;        ///< this rank's number on its machine
};

using OpenCuda = std::function<std::unique_ptr<tensor::CudaRuntime>()>;

/// A CUDA device of its own for every rank of the group, or the CPU for all, after a warning, when
/// no rank has one: the device of the rank's number, or the only one that the process may use
/// (srun shows each task its own). Every rank calls it and all end alike. Throws UserError with
/// status 4 when some ranks have none, a device cannot be used, or two ranks have the same;
/// UnsupportedError when one is demanded and there is none. `open` cannot be forked.
RankDevice agree_on_device(const DeviceRequest& request, const comm::ProcessGroup& group,
                           const OpenCuda& open, Reporter& reporter);

/// What an error that ends a rank comes to: its text, and the status of README.md's table.
launcher::RankOutcome outcome_of(const std::exception& error);

}  // namespace automodel::recipes

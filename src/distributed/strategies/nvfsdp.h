#pragma once

#include <memory>

#include "distributed/strategies/nvfsdp_options.h"

namespace automodel::distributed {

/// Whether this build has the engine of nvfsdp_strategy_parallelize; the CMake option
/// AUTOMODEL_NVFSDP can leave it out.
extern const bool HAVE_NVFSDP;

using NvfsdpStrategy = StrategyOf<NvfsdpOptions>;

/// The strategy of this build: tensor and context parallelism, then sharding by
/// data_parallel_sharding_strategy. Without the engine it throws UserError "nvFSDP is not installed
/// ...".
std::unique_ptr<NvfsdpStrategy> make_nvfsdp_strategy();

}  // namespace automodel::distributed

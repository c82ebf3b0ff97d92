#pragma once

#include "config/diagnostic.h"
#include "config/node.h"
#include "distributed/settings/distributed_config.h"

namespace automodel::recipes {

/// Reads the `distributed` section (part of read_recipe).
distributed::DistributedSetup read_distributed(const config::Node& node,
                                               config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

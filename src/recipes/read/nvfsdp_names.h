#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/diagnostic.h"
#include "config/node.h"

namespace automodel::recipes {

/// The key of a name for what zero_dp_strategy says by a number.
inline constexpr const char* kShardingName = "data_parallel_sharding_strategy";

/// Keys of a megatron_fsdp section by their names as arguments of nvfsdp_strategy_parallelize, and
/// their names in MegatronFSDPConfig.
std::vector<std::pair<std::string, std::string>> nvfsdp_names();

/// Renames the keys of a megatron_fsdp section that have other names as arguments of
/// nvfsdp_strategy_parallelize, which sections of NVFSDPManager use. An error where both are set.
void take_nvfsdp_names(config::Node& section, config::Diagnostics& diagnostics);

/// Takes that function's data_parallel_sharding_strategy out of a section: a name for what
/// zero_dp_strategy says by a number, and two more. Absent where it is not set, or after an error.
std::optional<std::string> take_sharding_name(config::Node& section,
                                              config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

#pragma once

#include <string_view>

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

/// Bounds of a Mamba-2 layer's steps: time_step_limit, or mamba_dt_limit.
void read_step_limits(ConfigReader& reader, Mamba2Options& mamba);

/// Adds a finding, naming both keys, unless the groups divide the heads.
void check_groups(ConfigReader& reader, Mamba2Options& mamba, std::string_view groups_key,
                  std::string_view heads_key);

}  // namespace automodel::models::decoder

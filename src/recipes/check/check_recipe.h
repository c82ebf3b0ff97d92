#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace automodel::recipes {

/// Prints what `automodel check` finds; returns 0, 2 (mistakes) or 6 (not in this version). Without
/// a `world_size` it checks for fitting_world_size() ranks.
int check_recipe(const std::string& path, const std::vector<std::string>& overrides,
                 std::optional<int64_t> world_size);

}  // namespace automodel::recipes

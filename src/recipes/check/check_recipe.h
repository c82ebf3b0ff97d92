#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace automodel::recipes {

/// What `automodel check` finds, printed; returns 0, 2 (mistakes) or 6 (not in this version).
/// Without a `world_size` it takes the smallest that fits.
int check_recipe(const std::string& path, const std::vector<std::string>& overrides,
                 std::optional<int64_t> world_size);

}  // namespace automodel::recipes

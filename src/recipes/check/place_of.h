#pragma once

#include <string_view>

#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Where a finding about a key of a section is told: at the key, else at the section, else at the
/// recipe.
const config::Node& place_of(const Recipe& recipe, std::string_view section, std::string_view key);

}  // namespace automodel::recipes

#pragma once

#include <string_view>

#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The node at which a finding about a section's key is shown: the key, else the section, else the
/// recipe.
const config::Node& place_of(const Recipe& recipe, std::string_view section, std::string_view key);

}  // namespace automodel::recipes

#pragma once

#include <string_view>

#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The node that a diagnostic about a section's key points at: the key where it is written, else
/// the section, else the recipe.
const config::Node& place_of(const Recipe& recipe, std::string_view section, std::string_view key);

}  // namespace automodel::recipes

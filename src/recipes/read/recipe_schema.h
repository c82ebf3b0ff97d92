#pragma once

#include <string>

#include "core/json.h"

namespace automodel::recipes {

/// The JSON Schema of recipes.
Json recipe_schema();

/// The text of `automodel explain` for a dotted key; throws UserError with a suggestion.
std::string explain(const std::string& key);

}  // namespace automodel::recipes

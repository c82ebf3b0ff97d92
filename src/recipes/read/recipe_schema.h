#pragma once

#include <string>

#include "core/json.h"

namespace automodel::recipes {

/// The JSON Schema of recipes.
Json recipe_schema();

/// The path of a key whose schema is that of the key at `path`: the keys of a mixture's datasets
/// ("dataset.datasets.1.split") are those of a dataset by itself ("dataset.split").
std::string path_in_schema(const std::string& path);

/// The text of `automodel explain` for a dotted key; throws UserError with a suggestion.
std::string explain(const std::string& key);

}  // namespace automodel::recipes

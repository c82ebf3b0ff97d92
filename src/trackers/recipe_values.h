#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"

namespace automodel::trackers {

/// The values that a recipe does not leave out, of `{"dotted.key": {"value": V, "origin": O}}`
/// (config::values_with_origins): the parts of each key, and the value, which stays in `values`.
/// Values come before what has their name and more.
std::vector<std::pair<std::vector<std::string>, const Json*>> written_values(const Json& values);

/// Puts a value at a path of an object. Beside a value at `a`, a key `a.b` keeps its dot.
void put_below(Json& parent, std::span<const std::string> path, const Json& value);

/// What a recipe does not leave out, as the recipe has it: sections are objects.
Json nested_values(const Json& values);

}  // namespace automodel::trackers

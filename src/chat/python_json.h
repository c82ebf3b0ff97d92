#pragma once

#include <optional>
#include <string_view>

#include "core/json.h"

namespace automodel::chat {

/// One JSON document as Python's json.loads reads it; nothing where that raises. Unlike
/// Json::parse: of equal keys the last wins in objects of any size, numbers beyond a double's range
/// are infinite, half of a surrogate pair is a character (three bytes that are not valid UTF-8), no
/// byte order mark is skipped, and {"__float__": ...} is an object as any other. Integers beyond 64
/// bits keep a double's precision. `text` is valid UTF-8. Nothing, too, where it is nested deeper
/// than 960 levels, a little before Python's recursion limit.
std::optional<Json> parse_python_json(std::string_view text);

}  // namespace automodel::chat

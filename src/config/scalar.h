#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/node.h"

namespace automodel::config {

/// A plain scalar as PyYAML's safe loader (YAML 1.1) resolves it: null, booleans (yes/no/on/off
/// too), integers (0x, 0b, octal 017, base 60), floats, dates; otherwise the string. Empty for a
/// text that looks like one of these and is not (`2026-13-45`), which PyYAML refuses too.
std::optional<Node> resolve_plain_scalar(std::string_view text);

/// A string as upstream's translate_value reads it: none, true, false, a Python literal, or itself.
Node translate_text(std::string_view text);

}  // namespace automodel::config

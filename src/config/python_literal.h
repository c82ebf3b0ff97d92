#pragma once

#include <optional>
#include <string_view>

#include "config/node.h"

namespace automodel::config {

/// The value that Python's ast.literal_eval returns for a text; empty where it raises. Tuples
/// become sequences, keys of dicts become text; complex numbers, bytes, sets and `...` are foreign
/// nodes.
std::optional<Node> parse_python_literal(std::string_view text);

}  // namespace automodel::config

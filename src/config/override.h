#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/diagnostic.h"
#include "config/node.h"
#include "config/source.h"

namespace automodel::config {

/// One override with its own source.
struct Override {
  std::vector<std::string> keys;  ///< the dotted path, split
  Position key_position;
  Node value;  ///< a string node, not yet translated
};

/// Splits arguments into overrides and appends a source for each. Adds findings for stray words and
/// empty keys.
std::vector<Override> parse_overrides(std::span<const std::string> arguments, Sources& sources,
                                      Diagnostics& diagnostics);

/// Applies an override: makes new sections; replaces a scalar in the way by a mapping; takes a
/// number after a list as an index. The value none removes a section (other values become null,
/// which unknown keys may be).
void apply_override(const Override& override, Node& root, Diagnostics& diagnostics);

}  // namespace automodel::config

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

/// Cuts arguments into overrides, appending a source for each. Findings: stray words, empty keys.
std::vector<Override> parse_overrides(std::span<const std::string> arguments, Sources& sources,
                                      Diagnostics& diagnostics);

/// Sets one value: new sections are made, a scalar in the way becomes a mapping, a number after a
/// list is an index into it, and none takes a section away (other values become null, which unknown
/// keys may be).
void apply_override(const Override& override, Node& root, Diagnostics& diagnostics);

}  // namespace automodel::config

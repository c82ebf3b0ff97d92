#pragma once

#include "config/diagnostic.h"
#include "config/node.h"
#include "config/source.h"

namespace automodel::config {

/// Parses sources[source] (normalised to \n line ends by the caller) as one YAML document: anchors,
/// aliases and `<<` resolved, plain scalars as YAML 1.1, other strings untouched. Adds findings;
/// the result is a null node when the text is not YAML, and always a mapping otherwise.
Node read_yaml(const Sources& sources, int source, Diagnostics& diagnostics);

}  // namespace automodel::config

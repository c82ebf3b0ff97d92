#pragma once

#include <string_view>

#include "config/diagnostic.h"

namespace automodel::recipes {

/// Adds what `found`, which began as a copy of `diagnostics`, has beyond it, but for findings that
/// are there already: what two parts of a recipe share is told of once. `whose` begins the texts.
void add_new_findings(const config::Diagnostics& found, config::Diagnostics& diagnostics,
                      std::string_view whose = "");

}  // namespace automodel::recipes

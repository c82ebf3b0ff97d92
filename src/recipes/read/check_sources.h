#pragma once

#include "config/diagnostic.h"
#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Refuses recipe classes and datasets that do not go with a model of an encoder and a decoder, and
/// datasets with sources for other models.
void check_sources(const config::Node& root, const Recipe& recipe,
                   config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

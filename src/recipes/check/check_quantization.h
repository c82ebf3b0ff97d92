#pragma once

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Base weights that their folder's config.json says are quantized: by a method that is read, and
/// allowed to be dequantized.
void check_stored_quantization(const Recipe& recipe, config::Diagnostics& diagnostics);

/// The section `quantization`: its values, and what weights in 4 bits do not go with.
void check_quantization(const Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

#pragma once

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Checks base weights that their config.json declares as quantized: the method must be one that
/// can be read, and the recipe must allow them to be dequantized.
void check_stored_quantization(const Recipe& recipe, config::Diagnostics& diagnostics);

/// Checks the values of the section `quantization`, and that nothing else in the recipe is
/// incompatible with weights in 4 bits.
void check_quantization(const Recipe& recipe, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

#pragma once

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// What keeps a student from learning of its teacher: meshes that are not built for it, and
/// vocabularies that differ. `looks_at_tokenizers`: also those of their folders. `recipe` distils.
void check_distillation(const Recipe& recipe, bool looks_at_tokenizers,
                        config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

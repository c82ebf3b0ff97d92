#pragma once

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// What keeps a student from learning of its teacher: meshes that are not built for it, and
/// vocabularies that differ. `looks_at_tokenizers`: also those of their folders. `recipe` distils.
void check_distillation(const Recipe& recipe, bool looks_at_tokenizers,
                        config::Diagnostics& diagnostics);

/// Student and teacher on ranks of their own: the ranks that each has, of `world_size`.
void check_separate_meshes(const Recipe& recipe, int64_t world_size,
                           config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

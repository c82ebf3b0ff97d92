#pragma once

#include "config/diagnostic.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Finds what is wrong with the keys that need validation sets, which are known without their files
/// (part of check_run).
void check_validation_sets(const Recipe& recipe, config::Diagnostics& diagnostics);

/// Finds what is wrong with the training set and the validation sets: files, columns, lengths,
/// loaders, and tokenizers unless `loads_tokenizers` is false (part of check_run).
void check_datasets(const Recipe& recipe, bool loads_tokenizers, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

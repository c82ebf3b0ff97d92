#pragma once

#include <string>

#include "config/diagnostic.h"
#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Reads every section of a recipe and adds all findings to `diagnostics`. Parts with errors keep
/// their defaults, so callers must stop when there are errors.
Recipe read_recipe(const config::Node& root, config::Diagnostics& diagnostics);

/// The folder of the tokenizer of a dataset section: its own, else the model's; "" when it is not
/// on this machine.
std::string tokenizer_folder(const Recipe& recipe, const DatasetSection& section);

/// Warns of `add_bos_token` and `add_eos_token` of a section whose dataset, or chat template,
/// writes all special tokens.
void warn_of_idle_tokens(const DatasetSection& section, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

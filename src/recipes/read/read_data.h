#pragma once

#include <string>

#include "config/diagnostic.h"
#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Reads what a recipe trains and validates on: `dataset`, `validation_dataset` and those named
/// `validation_dataset_...`, their loaders, and `packed_sequence`. The recipe's class is read
/// already.
void read_data(const config::Node& root, Recipe& recipe, config::Diagnostics& diagnostics);

/// The folder of the tokenizer of a dataset section: its own, else the model's; "" when it is not
/// on this machine.
std::string tokenizer_folder(const Recipe& recipe, const DatasetSection& section);

/// Warns of `add_bos_token` and `add_eos_token` of a section whose dataset, or chat template,
/// writes all special tokens.
void warn_of_idle_tokens(const DatasetSection& section, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

#pragma once

#include <vector>

#include "config/diagnostic.h"
#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

// Keys of a model's config.json that a recipe sets: `model.num_hidden_layers: 2` beside the model's
// name, or the arguments of an inline configuration.

/// Reports keys of an inline configuration that no family has.
void check_inline_keys(const config::Node& arguments, config::Diagnostics& diagnostics);

/// Sets the keys in the plan's config.json, where that is here; reports unknown ones, wrong values
/// and keys that have no effect.
void apply_config_changes(const std::vector<config::Node>& changes, ModelRecipe& plan,
                          config::Diagnostics& diagnostics);

/// Warns of changes that no part of the model reads: another family's keys, mostly. Builds the
/// model without memory to see what it reads.
void warn_of_unread_changes(const std::vector<config::Node>& changes, const ModelRecipe& plan,
                            config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

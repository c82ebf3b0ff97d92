#pragma once

#include <string>

#include "config/diagnostic.h"
#include "config/node.h"

namespace automodel::recipes {

/// The folder that a recipe's relative paths are looked for in when the current folder has none of
/// that name: the one that holds the `recipes` folder which the file lies in or below, as this
/// repository and an installed `share/automodel` do; of a file outside of such a folder its own.
std::string home_of_recipe(const std::string& recipe_path);

/// Replaces the relative paths of what a recipe reads (model and configuration folders, tokenizers,
/// data, schedule files) by where they are: a path that exists in the current folder stays, else
/// one that exists in the recipe's home becomes that. Those of command line arguments stay, and so
/// does what is in neither place. What a recipe writes is below the current folder always.
void find_paths(config::Node& root, config::Diagnostics& diagnostics);

/// "; looked for in A and in B" when a path of the recipe's file is in neither place, for the error
/// that says so; "" when there is one place only.
std::string looked_for_text(const config::Node& path, const config::Diagnostics& diagnostics);

/// looked_for_text() of the first path below a dataset's section that `said` speaks of.
std::string looked_for_below(const config::Node& section, const std::string& said,
                             const config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

#pragma once

#include <string>
#include <vector>

#include "config/diagnostic.h"
#include "config/node.h"

namespace automodel::recipes {

/// The second folder in which a recipe's relative paths are looked for, after the current folder:
/// the one that holds the nearest `recipes` folder in or below which the file lies (as in this
/// repository and an installed `share/automodel`), or the nearest `examples` folder (as upstream's
/// repository does), or the file's own folder when it lies in none.
std::string home_of_recipe(const std::string& recipe_path);

/// The nodes of all that a recipe reads by a path or name: model and configuration folders,
/// tokenizers, data, schedule files.
std::vector<config::Node*> path_nodes(config::Node& root);

/// Whether there is something of a recipe's relative path in a folder: a file or folder, files of
/// tokens of which it is the prefix, or what it matches as a pattern.
bool is_below(const std::string& folder, const std::string& path);

/// Replaces the relative paths of what a recipe reads (model and configuration folders, tokenizers,
/// data, schedule files): a path that exists in the current folder stays, else one that exists in
/// the recipe's home becomes the path there. Paths from the command line stay, and so do those that
/// exist in neither. What a recipe writes is always relative to the current folder.
void find_paths(config::Node& root, config::Diagnostics& diagnostics);

/// "; looked for in A and in B" when a path of the recipe's file exists in neither, to end an
/// error's text; "" when only one folder was searched or the path exists.
std::string looked_for_text(const config::Node& path, const config::Diagnostics& diagnostics);

/// Whether what a recipe names is there, and no folder.
bool is_plain_file(const std::string& path);

/// looked_for_text() of the first path in a dataset's section that occurs in the text `said`.
std::string looked_for_below(const config::Node& section, const std::string& said,
                             const config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

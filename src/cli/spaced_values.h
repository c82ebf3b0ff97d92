#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace automodel::cli {

/// `--a.b.c value` as `--a.b.c=value`, in the arguments of a command that takes a recipe, the
/// command's name first: a parser that does not know the key would take its value for the recipe.
/// Before a recipe is named, a file with the ending of YAML is that recipe, and the key before it
/// is set to true; other words are values if such a file comes behind them, but `a.b.c=value`,
/// which gets its dashes. A key without a value is set to true.
void join_spaced_values(const CLI::App& app, std::vector<std::string>& arguments);

}  // namespace automodel::cli

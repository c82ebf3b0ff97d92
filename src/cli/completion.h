#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace CLI {
class App;
}

namespace automodel::cli {

/// The program's commands with their purposes, options and closing texts, as they are defined.
Json describe_commands(const CLI::App& app);

/// What a command line may hold.
struct CompletionWords {
  Json commands;                     ///< describe_commands()
  std::vector<std::string> keys;     ///< dotted keys of recipes
  std::vector<std::string> recipes;  ///< names of shipped recipes
};

/// Every dotted key of a schema of recipes, sorted.
std::vector<std::string> dotted_keys(const Json& schema);

/// The script that completes command lines in "bash", "zsh" or "fish"; the commands themselves for
/// "json".
std::string completion_script(const std::string& shell, const CompletionWords& words);

}  // namespace automodel::cli

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace automodel::setup {

/// A recipe that comes with the program, as its header describes it:
///
///   # What it does, in a sentence or two.
///   # Task:   fine-tune
///   # Family: Llama
///   # Size:   1.6 M parameters
///   # Needs:  nothing beyond this repository.
///   # Run:    automodel run recipes/quickstart.yaml
struct ShippedRecipe {
  std::string name;  ///< path below the folder of recipes, without ".yaml": "smoke/mock_pretrain"
  std::string path;
  std::string about;
  std::string task, family, size, needs;
};

/// The folder of shipped recipes: `../share/automodel/recipes` beside the program's folder (an
/// installed program), else `share/automodel/recipes` in it (a build, where it leads to the
/// sources). Throws InputError naming both when there is none.
std::string shipped_folder();

/// Reads a header. Throws InputError naming the line that is missing.
ShippedRecipe read_header(std::string_view text, const std::string& name, const std::string& path);

/// All recipes below a folder, by name.
std::vector<ShippedRecipe> find_shipped(const std::string& folder);

/// Those in which every word occurs, in whatever case.
std::vector<ShippedRecipe> with_words(const std::vector<ShippedRecipe>& recipes,
                                      const std::vector<std::string>& words);

/// A table with a line a recipe.
std::string shipped_table(const std::vector<ShippedRecipe>& recipes);

/// The table's recipes as an array of objects, with their paths and descriptions.
Json shipped_json(const std::vector<ShippedRecipe>& recipes);

/// A recipe's text for a place outside of the folder of recipes: relative paths that exist in the
/// recipe's home become absolute, and commands in its header name `destination`.
std::string text_of_copy(const ShippedRecipe& recipe, const std::string& destination);

/// The recipe of this name ("smoke/mock_pretrain", also with ".yaml", or its last part where that
/// is one recipe's). Throws UserError with a suggestion.
const ShippedRecipe& shipped_by_name(const std::vector<ShippedRecipe>& recipes,
                                     const std::string& name);

/// `automodel ls`.
int list_shipped(const std::vector<std::string>& words, bool is_json);

/// `automodel cp`: to a file, into a folder, or by default beside. Throws UserError when the file
/// is there already.
int copy_shipped(const std::string& name, const std::string& destination);

}  // namespace automodel::setup

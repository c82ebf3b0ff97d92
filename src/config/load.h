#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/diagnostic.h"
#include "config/node.h"
#include "config/source.h"

namespace automodel::config {

/// Looks an environment variable up; empty when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string&)>;

/// The process's environment.
Environment process_environment();

/// A loaded recipe: overrides applied, `${ENV}` resolved, scalars translated.
struct Document {
  Node root;        ///< a mapping
  Sources sources;  ///< the file, then one for each override; keep it as long as Diagnostics
  std::vector<std::string> warnings;  ///< rendered, in the order found
};

/// Reads a recipe. `overrides` are the arguments after the recipe, each `--a.b=v`, `--a.b` followed
/// by `v`, `--flag` or `a.b=v`; applied in order. Throws UserError with everything that is wrong,
/// InputError when the file cannot be read.
Document load_recipe(const std::string& path, std::span<const std::string> overrides = {},
                     const Environment& environment = process_environment());

/// Reads a recipe as load_recipe() does, but from a text; errors call it `name`.
Document load_text(std::string text, std::string name, std::span<const std::string> overrides = {},
                   const Environment& environment = process_environment());

}  // namespace automodel::config

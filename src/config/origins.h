#pragma once

#include <string>
#include <vector>

#include "config/diagnostic.h"
#include "config/load.h"
#include "core/json.h"

namespace automodel::config {

/// What a recipe comes to: an object from dotted keys to `{"value": V, "origin": O}`, in the order
/// of the recipe and then the keys that it leaves out, by name. O is "recipe.yaml:12", "command
/// line" or "default". A list of scalars is one value, as is an empty list or mapping. Values under
/// a secret key are "******", and text from the environment stays a placeholder. `diagnostics`
/// has what was found while the recipe was read.
Json values_with_origins(const Document& document, const Diagnostics& diagnostics);

/// Command line arguments with the values of secret keys hidden: `--wandb.api_key=******`.
std::vector<std::string> without_secrets(std::vector<std::string> arguments);

}  // namespace automodel::config

#pragma once

#include <string>

#include "core/reporter.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The recipe that a checkpoint keeps, read again. Throws UserError where it cannot be, as in
/// another folder than the run's, whose paths it has.
Recipe read_kept_recipe(const std::string& checkpoint, Reporter& reporter);

}  // namespace automodel::recipes

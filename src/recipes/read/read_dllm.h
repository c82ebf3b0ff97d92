#pragma once

#include <optional>
#include <string>

#include "config/diagnostic.h"
#include "config/node.h"
#include "recipes/read/dllm_section.h"

namespace automodel::recipes {

/// Whether the `dllm` section names a mode of kMaskedDiffusionRecipe that only upstream has.
bool is_dllm_mode_foreign(const config::Node& root);

/// Reads the `dllm` section of a recipe; absent for recipes that do not train by diffusion, where
/// the section is an error (part of read_recipe).
std::optional<DllmSection> read_dllm(const config::Node& root, const std::string& recipe_class,
                                     config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

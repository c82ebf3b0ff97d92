#pragma once

#include "config/diagnostic.h"
#include "config/node.h"
#include "recipes/read/dllm_section.h"

namespace automodel::recipes {

/// Reads the `dllm` section of a recipe that trains by diffusion (part of read_recipe).
DllmSection read_dllm(const config::Node& root, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

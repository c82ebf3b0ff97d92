#pragma once

#include <string>
#include <string_view>

#include "core/json.h"

namespace automodel::checkpoint {

/// Paths of a checkpoint's small files: upstream's names with .json instead of .pt.
std::string step_scheduler_path(std::string_view checkpoint);
std::string rng_path(std::string_view checkpoint, int global_rank);
std::string dataloader_path(std::string_view checkpoint, int dp_rank);
std::string optimizer_path(std::string_view checkpoint);  ///< scalars, groups and schedule
std::string losses_path(std::string_view checkpoint);
std::string signature_path(std::string_view checkpoint);
std::string recipe_path(std::string_view checkpoint);  ///< config.yaml

/// Writes a JSON document atomically, and its directory if needed. Throws InputError.
void write_state(const std::string& path, const Json& state);

/// Throws InputError "checkpoint file PATH is missing", or naming what is wrong with it.
Json read_state(const std::string& path);

}  // namespace automodel::checkpoint

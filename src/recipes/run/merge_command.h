#pragma once

#include <string>

namespace automodel::recipes {

/// `automodel merge-lora`: writes the folder `out` of a base model with an adapter's changes, and
/// says so. Returns the exit status; throws UserError.
int run_merge_lora_command(const std::string& base, const std::string& adapter,
                           const std::string& out);

}  // namespace automodel::recipes

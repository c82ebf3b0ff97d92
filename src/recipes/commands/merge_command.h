#pragma once

#include <string>

namespace automodel::recipes {

/// `automodel merge-lora`: writes the base model's folder with the adapter merged into its weights
/// to `out`, and prints what it wrote. `base_name`: a folder, or a name on the hub. Returns the
/// exit status; throws UserError.
int run_merge_lora_command(const std::string& base_name, const std::string& adapter,
                           const std::string& out);

}  // namespace automodel::recipes

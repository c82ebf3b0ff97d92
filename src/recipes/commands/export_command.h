#pragma once

#include <string>

namespace automodel::recipes {

/// `automodel export`: writes the weights of a checkpoint, however many ranks have saved it, as the
/// Hugging Face folder `out` that the run would write at its end, and prints what it wrote. Returns
/// the exit status; throws UserError.
int run_export_command(const std::string& checkpoint, const std::string& out);

}  // namespace automodel::recipes

#pragma once

#include <cstdint>
#include <string>

namespace automodel::peft {

/// Writes the folder of a base model with an adapter merged into its weights: W + scale * B A, in
/// float32, rounded once to the dtype of the base's tensor; of DoRA, its rows with the trained
/// lengths. `out` is a new folder. InputError where the adapter is not one of this base.
/// The number of weights that were changed.
int64_t merge_adapter(const std::string& base, const std::string& adapter, const std::string& out);

}  // namespace automodel::peft

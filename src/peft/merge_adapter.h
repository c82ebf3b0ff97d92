#pragma once

#include <cstdint>
#include <string>

namespace automodel::peft {

/// Writes a base model's folder with an adapter merged into its weights to the new folder `out`: W
/// + scale * B A in float32 (for DoRA with rows scaled to the trained lengths), rounded once to the
/// dtype of the base's tensor. Returns the number of changed weights. Throws InputError when the
/// adapter is not one of this base.
int64_t merge_adapter(const std::string& base, const std::string& adapter, const std::string& out);

}  // namespace automodel::peft

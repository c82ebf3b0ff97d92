#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace automodel::config {

/// {a name in Hugging Face's Trainer, PEFT, axolotl or torchtitan, the key of that meaning here}.
std::span<const std::pair<std::string_view, std::string_view>> names_elsewhere();

/// What other training programs call by this name is called here ("lr" for "learning_rate"); "" for
/// names that they have not, or that are the same here.
std::string_view name_here(std::string_view name_elsewhere);

/// A `_target_` for a section of this name, as upstream calls it; "" for sections without one.
std::string_view example_target(std::string_view section);

/// "; did you mean 'lr'?" for a key that is not among `valid`: the one of that meaning, else one
/// spelled alike; "" when there is neither.
std::string hint_for_key(std::string_view key, std::span<const std::string> valid);

}  // namespace automodel::config

#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/diagnostic.h"
#include "config/node.h"

namespace automodel::config {

/// A name in Hugging Face's Trainer, PEFT, axolotl or torchtitan.
struct OtherName {
  std::string_view elsewhere;
  std::string_view here;  ///< the key of that meaning
  std::string_view how;   ///< what its value is, where the other program's is something else; or ""
};

std::span<const OtherName> names_elsewhere();

/// What other training programs call by this name is called here ("lr" for "learning_rate"); "" for
/// names that they have not, or that are the same here.
std::string_view name_here(std::string_view name_elsewhere);

/// The `_target_` of what other training programs call by this name ("torch.optim.AdamW" for
/// "adamw_torch"); "" for names that they have not.
std::string_view target_here(std::string_view name_elsewhere);

/// A `_target_` for a section of this name, as upstream calls it; "" for sections without one.
std::string_view example_target(std::string_view section);

/// "; did you mean 'a' or 'b'? (it is a number of steps)" for a name of another program and the
/// keys here that have its meaning; "" for no keys.
std::string hint_of_meaning(std::string_view name_elsewhere, std::span<const std::string> keys);

/// "; did you mean 'lr'?" for a key that is not among `valid`: the one of that meaning, else one
/// spelled alike; "" when there is neither.
std::string hint_for_key(std::string_view key, std::span<const std::string> valid);

/// A hint for a key of a recipe, which another section may have: a key of that meaning among
/// `valid`, else one of that name or meaning in another section, else one of `valid` that is
/// spelled alike.
std::string hint_for_key(const Node& key, std::span<const std::string> valid,
                         const Diagnostics& diagnostics);

}  // namespace automodel::config

#pragma once

#include <string>
#include <string_view>

namespace automodel::peft {

// What the names of an adapter's tensors end with, behind their layer's.
inline constexpr std::string_view kLoraA = ".lora_A.weight";
inline constexpr std::string_view kLoraB = ".lora_B.weight";
inline constexpr std::string_view kLoraMagnitude = ".lora_magnitude_vector";

// Experts are stacked: the adapter of their second product has the name of the module ("…experts"),
// that of the first the name of what PEFT wraps inside it ("…experts.base_layer").
inline constexpr std::string_view kInnerExperts = ".base_layer";

/// A name without its end.
inline std::string without_suffix(std::string_view name, std::string_view suffix) {
  return std::string(name.substr(0, name.size() - suffix.size()));
}

}  // namespace automodel::peft

#pragma once

#include <string>
#include <string_view>

#include "models/class_names.h"

namespace automodel::peft {

// Ends of the names of an adapter's tensors, after their layer's name.
inline constexpr std::string_view kLoraA = ".lora_A.weight";
inline constexpr std::string_view kLoraB = ".lora_B.weight";
inline constexpr std::string_view kLoraMagnitude = ".lora_magnitude_vector";

// Experts are stacked: the adapter of their second product is named after the module ("…experts"),
// the first one's after what PEFT wraps inside it ("…experts.base_layer").
inline constexpr std::string_view kInnerExperts = ".base_layer";

/// The head of a model that classifies sequences, which is trained whole and saved beside adapters
/// (PEFT's modules_to_save).
inline constexpr std::string_view kSavedModule = models::kClassifierHead;
inline constexpr std::string_view kSavedHead = "score.weight";

/// A name without its suffix.
inline std::string without_suffix(std::string_view name, std::string_view suffix) {
  return std::string(name.substr(0, name.size() - suffix.size()));
}

}  // namespace automodel::peft

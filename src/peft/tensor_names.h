#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::peft {

// Ends of the names of an adapter's tensors, after their layer's name.
inline constexpr std::string_view kLoraA = ".lora_A.weight";
inline constexpr std::string_view kLoraB = ".lora_B.weight";
inline constexpr std::string_view kLoraMagnitude = ".lora_magnitude_vector";

// Experts are stacked: the adapter of their second product is named after the module ("…experts"),
// the first one's after what PEFT wraps inside it ("…experts.base_layer").
inline constexpr std::string_view kInnerExperts = ".base_layer";

/// Whether a tensor is of one of these modules, which are trained whole and saved beside adapters
/// (PEFT's modules_to_save). `modules`: CausalLM::saved_modules().
inline bool is_of_modules(std::string_view name, const std::vector<std::string>& modules) {
  return std::ranges::any_of(modules, [&](const std::string& module) {
    return name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.';
  });
}

/// A name without its suffix.
inline std::string without_suffix(std::string_view name, std::string_view suffix) {
  return std::string(name.substr(0, name.size() - suffix.size()));
}

}  // namespace automodel::peft

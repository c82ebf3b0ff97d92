#pragma once

namespace automodel::datasets {

/// The longest sample that a recipe may ask for, in tokens: arithmetic on lengths of several
/// samples stays far from overflowing.
inline constexpr double kMostTokens = 1 << 30;

}  // namespace automodel::datasets

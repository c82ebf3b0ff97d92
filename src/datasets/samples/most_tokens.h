#pragma once

#include <cstdint>

#include "core/error.h"
#include "core/text.h"

namespace automodel::datasets {

/// The longest sample that a recipe may ask for, in tokens: arithmetic on lengths of several
/// samples stays far from overflowing.
inline constexpr double kMostTokens = 1 << 30;

/// Throws UserError for a batch whose padding makes it longer than that.
inline void check_length(int64_t length) {
  constexpr auto kMost = static_cast<int64_t>(kMostTokens);
  if (length <= kMost) return;
  throw UserError(cat("padding makes sequences of ", length, " tokens of a batch; at most ", kMost,
                      " are possible: take smaller multiples to pad to"));
}

}  // namespace automodel::datasets

#pragma once

namespace automodel::distributed {

/// Which gradients end a run before the update, whatever the recipe says about the loss.
enum class GradientCheck {
  kNone,
  kNonFinite  ///< NaN or infinite
};

}  // namespace automodel::distributed

#pragma once

namespace automodel::distributed {

/// Which gradients end a run before the update, whatever the recipe says about the loss.
enum class GradientCheck {
  kNone,
  kNan,       ///< check_for_nan_in_grad
  kNonFinite  ///< report_nan_in_param_grad: NaN or infinite
};

}  // namespace automodel::distributed

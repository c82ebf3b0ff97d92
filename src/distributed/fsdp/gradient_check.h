#pragma once

namespace automodel::distributed {

/// Gradients that stop a step before its update, whatever a recipe says about the loss.
enum class GradientCheck {
  kNone,
  kNan,       ///< check_for_nan_in_grad
  kNonFinite  ///< report_nan_in_param_grad: infinite ones too
};

}  // namespace automodel::distributed

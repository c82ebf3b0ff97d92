#pragma once

#include <functional>

#include "nn/unit_hook.h"

namespace automodel::distributed {

/// Returns `tensors`; in backward, `action` runs once everything computed from them has been
/// differentiated. `action` is kept by reference. Tensors that need no gradient are returned
/// unchanged.
nn::TensorList when_differentiated(const nn::TensorList& tensors,
                                   const std::function<void()>& action);

/// Returns `tensors`; in backward, `action` runs when the gradient of one of them arrives, before
/// what it was computed from is differentiated: once for each of them that needs a gradient.
nn::TensorList before_differentiated(nn::TensorList tensors, const std::function<void()>& action);

}  // namespace automodel::distributed

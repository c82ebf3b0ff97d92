#pragma once

#include <functional>

#include "nn/unit_hook.h"

namespace automodel::distributed {

/// `tensors` as they are; `action` runs in backward when everything computed from them has been
/// differentiated. It is kept by reference. Tensors without a gradient are passed on as they are.
nn::TensorList when_differentiated(const nn::TensorList& tensors,
                                   const std::function<void()>& action);

}  // namespace automodel::distributed

#pragma once

#include <ATen/core/grad_mode.h>

#include "distributed/engine/engine.h"

namespace automodel::distributed {

/// One step of SGD at a rate of 0.1, from the engine's gradients, which it then sets to zero.
inline void sgd_step(Engine& engine) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < engine.trained().size(); ++i) {
    at::Tensor values = engine.trained()[i].buffer;
    values.sub_(engine.gradients()[i].buffer, 0.1);
  }
  engine.parameters_changed();
  engine.zero_gradients();
}

}  // namespace automodel::distributed

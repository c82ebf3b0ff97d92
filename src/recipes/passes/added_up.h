#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::recipes {

/// The number that a head has added up, in a tensor of one element; 0 while it is undefined, which
/// it is before the first.
inline double added_up(const at::Tensor& sum) {
  return sum.defined() ? sum.item<double>() : 0;
}

}  // namespace automodel::recipes

#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace automodel::tensor {

/// Tensors by name, in a fixed order.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// The tensor with a name; null if there is none.
inline const at::Tensor* find_tensor(const NamedTensors& tensors, std::string_view name) {
  for (const auto& [key, value] : tensors) {
    if (key == name) return &value;
  }
  return nullptr;
}

}  // namespace automodel::tensor

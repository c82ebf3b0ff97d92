#pragma once

#include <torch/nn/module.h>

namespace automodel::nn {

/// A module that holds the repeated layers of a model in order, as torch's ModuleList does.
/// Sharding makes every element a unit.
class LayerList final : public torch::nn::Module {
 public:
  LayerList() : torch::nn::Module("LayerList") {}
};

}  // namespace automodel::nn

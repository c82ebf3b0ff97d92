#pragma once

#include <torch/nn/module.h>

#include <string>

namespace automodel::nn {

/// Holds the repeated layers of a model in order, as torch's ModuleList does. Sharding makes every
/// element a unit.
class LayerList final : public torch::nn::Module {
 public:
  LayerList() : torch::nn::Module("LayerList") {}

  /// Removes a layer; the others keep their names.
  void remove(const std::string& name) { unregister_module(name); }
};

}  // namespace automodel::nn

#pragma once

#include <torch/nn/module.h>

#include <string>

namespace automodel::nn {

/// A module that holds the repeated layers of a model in order, as torch's ModuleList does.
/// Sharding makes every element a unit.
class LayerList final : public torch::nn::Module {
 public:
  LayerList() : torch::nn::Module("LayerList") {}

  /// Takes a layer out; the others keep their names.
  void remove(const std::string& name) { unregister_module(name); }
};

}  // namespace automodel::nn

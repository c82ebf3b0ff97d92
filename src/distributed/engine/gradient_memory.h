#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

namespace automodel::distributed {

/// Gradients of one rank, unit by unit, that have memory only from the unit's backward until
/// release(): in a step's forward, whose activations need the most, there are none. Tensors made by
/// add() persist; reading one that has no memory throws c10::Error.
class GradientMemory final {
 public:
  explicit GradientMemory(size_t num_units);

  /// The flat gradients of parameters of a unit: one-dimensional, zeroed.
  at::Tensor add(size_t unit, int64_t numel, at::ScalarType dtype, at::Device device);

  /// Installs a hook by which the module's backward allocates the unit's gradients before it adds
  /// to them. Without it (a module without a hook) they stay. Call it after everything else that
  /// installs hooks in the module.
  void watch(torch::nn::Module& module, size_t unit);

  /// Zeroed memory for all units that have none.
  void allocate();
  /// Frees the memory of all units, or sets it to zero where it stays.
  void release();
  /// Allocates all memory, which stays from now on.
  void keep();

 private:
  struct State;
  class AllocatesInBackward;
  std::shared_ptr<State> state_;  // shared with the hooks
};

}  // namespace automodel::distributed

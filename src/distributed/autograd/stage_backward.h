#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace automodel::distributed {

/// The end of a stage's graph of one micro-batch and what arrived there.
struct StageGraph {
  at::Tensor input;            ///< a leaf; undefined for the first stage
  at::Tensor output;           ///< hidden states, or the loss
  at::Tensor output_gradient;  ///< undefined for a loss: 1
};

/// Computes all gradients: the parameters' are added to theirs, the input's is returned (undefined
/// without an input).
at::Tensor stage_backward(const StageGraph& graph);

/// What is left of a stage's backward when its input's gradient is known: what arrived where the
/// ways to the input and to parameters part, so that nothing on the way is computed twice.
class WeightBackward final {
 public:
  WeightBackward();
  ~WeightBackward();
  WeightBackward(WeightBackward&&) noexcept;
  WeightBackward& operator=(WeightBackward&&) noexcept;

  /// Adds the parameters' gradients to theirs and gives the graph up. Once.
  void run();
  /// Whether run() goes through the stage's output: nothing was computed before.
  bool is_whole() const;

 private:
  friend std::pair<at::Tensor, WeightBackward> stage_backward_input(const StageGraph& graph);
  struct State;
  std::unique_ptr<State> state_;
};

/// Computes the gradient of the input only; the rest is run() of the second, which keeps the graph.
/// A stage without an input leaves everything to it. Functions that hide parameters in their
/// backward (recomputed blocks) compute the gradients of those here and leave nothing.
std::pair<at::Tensor, WeightBackward> stage_backward_input(const StageGraph& graph);

}  // namespace automodel::distributed

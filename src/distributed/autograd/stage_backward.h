#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace automodel::distributed {

/// The ends of one micro-batch's graph in a pipeline stage, and the gradient that arrived.
struct StageGraph {
  at::Tensor input;            ///< a leaf; undefined for the first stage
  at::Tensor output;           ///< hidden states, or the loss
  at::Tensor output_gradient;  ///< undefined for a loss, whose gradient is 1
};

/// Computes all gradients: adds the parameters' to their .grad and returns the input's (undefined
/// without an input).
at::Tensor stage_backward(const StageGraph& graph);

/// The rest of a stage's backward once its input's gradient is known. It keeps the gradients that
/// arrived at the nodes from which both the input and parameters are reached, so nothing before
/// these nodes is computed twice.
class WeightBackward final {
 public:
  WeightBackward();
  ~WeightBackward();
  WeightBackward(WeightBackward&&) noexcept;
  WeightBackward& operator=(WeightBackward&&) noexcept;

  /// Adds the parameters' gradients to their .grad and releases the graph. May be called once.
  void run();
  /// Whether run() goes through the stage's output, since no backward was computed before.
  bool is_whole() const;

 private:
  friend std::pair<at::Tensor, WeightBackward> stage_backward_input(const StageGraph& graph);
  struct State;
  std::unique_ptr<State> state_;
};

/// Computes the input's gradient only; run() of the second result, which keeps the graph, does the
/// rest. For a stage without an input run() does everything. Functions that hide parameters in
/// their backward (recomputed blocks) add those parameters' gradients here already.
std::pair<at::Tensor, WeightBackward> stage_backward_input(const StageGraph& graph);

}  // namespace automodel::distributed

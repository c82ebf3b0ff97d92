#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "tensor/batch.h"
#include "tensor/kernel_graph.h"

namespace automodel::training {

/// A step could not be recorded; what() says why. Nothing was computed, and nothing will be
/// recorded.
class NotRecorded final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Forwards, backwards and reductions of steps that are all alike, recorded once and launched
/// without the host's time for each kernel. A step is like the one before when it has as many
/// micro-batches of the same shapes, without padding and without documents, whose masks the host
/// would have to read. After kAlike such steps the next one is recorded. Anything else that is done
/// with the model, validation or a step of another shape, drops the recording: it may have freed
/// memory that the recording reads.
class StepGraph final {
 public:
  static constexpr int kAlike = 2;

  StepGraph(std::unique_ptr<tensor::KernelGraph> graph, at::Device device);

  /// Adds up the gradients of a step's batches: `work` does it, with the batches themselves, or,
  /// where is_recorded, with batches on the device whose numbers other steps will have replaced. A
  /// recorded step knows no number of the step, so it must do the same for each. Returns whether
  /// the step is one that was recorded, now or before.
  using Work = std::function<void(const std::vector<tensor::Batch>& batches, bool is_recorded)>;
  /// Throws NotRecorded after `work` has left what it counts in any state; what a step computes is
  /// untouched.
  bool run(const std::vector<tensor::Batch>& batches, const Work& work);

  /// Forgets the recording.
  void drop();

 private:
  void record(const std::vector<tensor::Batch>& batches, const Work& work);
  void take(const std::vector<tensor::Batch>& batches);

  std::unique_ptr<tensor::KernelGraph> graph_;
  at::Device device_;
  std::vector<std::vector<int64_t>> last_;  ///< sizes of the last step's micro-batches
  int num_alike_ = 0;                       ///< steps of these sizes in a row
  bool is_recorded_ = false;
  std::vector<tensor::Batch> fixed_;  ///< where a recorded step reads its batches
};

}  // namespace automodel::training

#pragma once

#include <functional>

namespace automodel::tensor {

/// Kernels of a device that are recorded once and then launched as one, without the host's time for
/// each of them. They read and write the memory that they were recorded with: whoever records keeps
/// it, and puts new inputs where the old ones were.
class KernelGraph {
 public:
  virtual ~KernelGraph() = default;

  /// Calls `work` with the graph's own stream as this thread's. The stream begins after what the
  /// thread's stream was given before, and the latter goes on after it. What is recorded and
  /// replayed is recorded and replayed in here, and so is what comes before it.
  virtual void run(const std::function<void()>& work) = 0;

  /// Records the kernels that `work` launches, and computes nothing. Throws what `work` throws,
  /// and c10::Error where it launches what cannot be recorded, such as a read of the device's
  /// memory; then there is no recording.
  virtual void record(const std::function<void()>& work) = 0;

  /// Launches what was recorded last.
  virtual void replay() = 0;

  /// Frees what was recorded, and the memory that it computes in.
  virtual void forget() = 0;
};

}  // namespace automodel::tensor

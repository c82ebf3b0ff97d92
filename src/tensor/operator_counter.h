#pragma once

#include <cstdint>
#include <memory>

namespace automodel::tensor {

/// What LibTorch was asked to do. Loops of our own over a tensor's memory are no operators.
struct OperatorCounts {
  int64_t num_operators = 0;   ///< those called by others too
  int64_t num_copies = 0;      ///< aten::copy_, which clone, contiguous and to call
  int64_t copied_bytes = 0;    ///< what the copies wrote
  int64_t num_host_reads = 0;  ///< numbers that the host read; on a device each waits for it
};

/// Counts LibTorch's operators from its construction on: those of the thread that made it, which
/// also destroys it, and of the backward passes that this thread starts. Each operator is slower
/// meanwhile. One at a time.
class OperatorCounter final {
 public:
  OperatorCounter();
  ~OperatorCounter();
  OperatorCounter(const OperatorCounter&) = delete;
  OperatorCounter& operator=(const OperatorCounter&) = delete;

  OperatorCounts counts() const;

 private:
  uint64_t handle_;
};

}  // namespace automodel::tensor

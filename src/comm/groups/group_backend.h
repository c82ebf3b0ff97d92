#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <stdexcept>

#include "comm/groups/collective.h"

namespace automodel::comm {

/// Ranks of a group came with different operations where one was due. The text names both.
class RanksDisagree final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A backend's operation under way. It keeps its tensors alive. If it is destroyed before its end,
/// the operation may still run.
class BackendWork {
 public:
  virtual ~BackendWork() = default;
  virtual void wait() = 0;
  virtual bool is_done() = 0;
};

/// A position in a device's stream of work.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
  /// Sets the mark after all work that the calling thread's current stream has been given so far.
  virtual void set() = 0;
  /// From any thread. Throws the device's error if it has failed.
  virtual bool is_reached() = 0;
};

/// The implementation of a group. A world of one has its own, so callers never ask whether there is
/// a group.
class GroupBackend {
 public:
  virtual ~GroupBackend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Starts an operation that ProcessGroup::start() has checked, and returns it, or null when it is
  /// already complete.
  virtual std::unique_ptr<BackendWork> start(const Collective& collective) = 0;

  /// Called after a failure, when the group will not be used again: ends waits that would never
  /// end, also the device's, whatever the peers do. From any thread; called at most once.
  virtual void abort() {}
  /// A mark for the streams of a device, if wait() returns before the operation is complete; null
  /// for backends whose wait() waits for its end.
  virtual std::unique_ptr<StreamMark> mark(at::Device) { return nullptr; }
};

}  // namespace automodel::comm

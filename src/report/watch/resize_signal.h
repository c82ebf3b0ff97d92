#pragma once

#include <csignal>

namespace automodel::report {

/// Waits that end early when the terminal's size changes: while it lives, this thread and those it
/// starts hold SIGWINCH back.
class ResizeSignal final {
 public:
  ResizeSignal();
  ~ResizeSignal();
  ResizeSignal(const ResizeSignal&) = delete;
  ResizeSignal& operator=(const ResizeSignal&) = delete;

  /// Returns whether the size has changed, then or since the last wait; else so many seconds later.
  bool wait(double seconds) const;

 private:
  sigset_t signal_{}, before_{};
};

}  // namespace automodel::report

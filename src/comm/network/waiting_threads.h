#pragma once

#include <functional>
#include <memory>

namespace automodel::comm {

/// Threads that each wait for one thing at a time. A thread whose wait is over takes the next one:
/// there are as many as there were waits at once, and LibTorch, which remembers every thread that
/// called it, remembers no more.
class WaitingThreads final {
 public:
  WaitingThreads();
  /// Does not wait for what is under way: those threads end by themselves.
  ~WaitingThreads();
  WaitingThreads(const WaitingThreads&) = delete;
  WaitingThreads& operator=(const WaitingThreads&) = delete;

  /// Calls `wait`, which must throw nothing, on a thread, now. Throws std::system_error when the
  /// system starts no thread.
  void run(std::function<void()> wait);

 private:
  struct State;
  std::shared_ptr<State> state_;  // the threads' too
};

}  // namespace automodel::comm

#pragma once

#include <functional>
#include <thread>
#include <vector>

namespace automodel::recipes {

/// While it lives, a signal that ends the process is told of before it does. A second one ends the
/// process at once. Signals that are ignored (nohup) stay so. At most one in a process.
class LastWords final {
 public:
  /// `tell` is called with the signal, on a thread of its own beside whatever runs; the signal then
  /// has its default effect.
  LastWords(std::vector<int> signals, std::function<void(int signal)> tell);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  void listen(const std::function<void(int signal)>& tell) const;

  std::vector<int> signals_;
  int pipe_[2] = {-1, -1};
  std::thread thread_;
};

}  // namespace automodel::recipes

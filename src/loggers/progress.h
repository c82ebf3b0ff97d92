#pragma once

#include <cstdint>
#include <string>

namespace automodel::loggers {

/// How far a run is and how long it still takes, as one line:
/// `Training 50% |████████████            | 50/100 [00:20<00:20, 2.50 step/s] loss 1.2346`.
class ProgressBar final {
 public:
  /// Steps done before this process began count as done but not for the rate.
  ProgressBar(int64_t first_step, int64_t num_steps);

  /// The line after `num_done` steps (all, not only this process's), `seconds` after the first
  /// began. A run without an end (num_steps 0) shows no percentage and no time left.
  std::string line(int64_t num_done, double seconds, double loss) const;

 private:
  int64_t first_step_;
  int64_t num_steps_;
};

/// "01:05", "2:00:09": a duration as tqdm writes it.
std::string clock_text(double seconds);

}  // namespace automodel::loggers

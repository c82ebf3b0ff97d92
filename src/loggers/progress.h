#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace automodel::loggers {

/// What a step has come to, as far as it is known.
struct StepNumbers {
  double loss = 0;
  std::optional<double> tokens_per_second;
  std::optional<double> memory_gib;   ///< the most that was held until now
  std::optional<double> planned_gib;  ///< what `automodel plan` expects
  std::optional<double> mfu_percent;
};

/// How far a run is, how long it still takes and how it goes, as one line:
/// `Training 50% |█████     | 50/100 [00:20<00:20, 2.50 step/s] loss 1.2346 ↓ 5065 tok/s 0.2/0.3
/// GiB`. The arrow says where the loss goes: the mean of about 10 steps beside that of about 50.
class ProgressBar final {
 public:
  /// Steps done before this process began count as done but not for the rate.
  ProgressBar(int64_t first_step, int64_t num_steps);

  /// The line after `num_done` steps (all, not only this process's), `seconds` after the first
  /// began. A run without an end (num_steps 0) shows no percentage and no time left. Called once a
  /// step.
  std::string line(int64_t num_done, double seconds, const StepNumbers& numbers);

 private:
  std::string trend(double loss);

  int64_t first_step_;
  int64_t num_steps_;
  int64_t num_losses_ = 0;
  double short_mean_ = 0;
  double long_mean_ = 0;
};

/// "01:05", "2:00:09": a duration as tqdm writes it.
std::string clock_text(double seconds);

}  // namespace automodel::loggers

#pragma once

#include <algorithm>

#include "core/clock.h"

namespace automodel {

/// A clock for a loop that looks again and again whether it has waited too long. Where the process
/// stood still between two readings (suspended by a scheduler, frozen with its container), only
/// `longest_round_seconds` of that time count: what the loop waits for may have stood still too.
class AwakeClock final {
 public:
  explicit AwakeClock(double longest_round_seconds)
      : longest_round_seconds_(longest_round_seconds), read_at_(monotonic_seconds()) {}

  /// Seconds since the clock was made.
  double seconds() {
    const double now = monotonic_seconds();
    seconds_ += std::min(now - read_at_, longest_round_seconds_);
    read_at_ = now;
    return seconds_;
  }

 private:
  double longest_round_seconds_;
  double read_at_;
  double seconds_ = 0;
};

}  // namespace automodel

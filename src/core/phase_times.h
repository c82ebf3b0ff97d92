#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace automodel {

/// Where the time since a moment went: phases one after the other, which add up to all of it. A
/// phase that comes again gets more time; phases stay in the order in which they first came.
class PhaseTimes final {
 public:
  struct Phase {
    std::string name;
    double seconds = 0;
  };

  /// `begin_seconds`: of monotonic_seconds().
  explicit PhaseTimes(double begin_seconds)
      : begin_seconds_(begin_seconds), last_seconds_(begin_seconds) {}

  /// Ends a phase now: all time that is of no phase yet is of this one.
  void end(std::string_view phase);
  /// Of the time that is of no phase yet, so many seconds are of this one.
  void add(std::string_view phase, double seconds);

  double begin_seconds() const { return begin_seconds_; }
  /// From the beginning to the end of the last phase.
  double total_seconds() const { return last_seconds_ - begin_seconds_; }
  const std::vector<Phase>& phases() const { return phases_; }

 private:
  double begin_seconds_;
  double last_seconds_;  // the end of the last phase
  std::vector<Phase> phases_;
};

/// A line for each phase, with milliseconds and its share; the milliseconds, as they are written,
/// add up to the total's.
std::vector<std::string> table_of(const PhaseTimes& times);

}  // namespace automodel

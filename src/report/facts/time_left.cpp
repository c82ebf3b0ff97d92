#include "report/facts/time_left.h"

#include <algorithm>
#include <cmath>

#include "report/facts/run_facts.h"

namespace automodel::report {

namespace {

/// The step that came first after the last resume or rollback; 0 where there was none.
double first_step_of_process(const EventLog& events) {
  double first = 0;
  for (const RunEvent& event : events) {
    if (event.name == "resume" && event.step) first = static_cast<double>(*event.step);
    const double next = number_of(event.fields, "next_step");
    if (event.name == "rollback" && std::isfinite(next)) first = next;
  }
  return first;
}

}  // namespace

double seconds_left(const RecordedRun& run) {
  constexpr size_t kLatest = 64;
  const auto most = run.max_steps();
  const StepTable& steps = run.steps;
  if (!most || run.has_ended() || steps.size() < 2) return std::nan("");
  const double first = first_step_of_process(run.events);
  std::vector<double> durations;
  for (size_t i = steps.size() - 1; i > 0 && durations.size() < kLatest; --i) {
    if (steps.step[i - 1] < first) break;
    const double num_steps = steps.step[i] - steps.step[i - 1];
    const double seconds = (steps.seconds[i] - steps.seconds[i - 1]) / num_steps;
    if (num_steps > 0 && seconds >= 0) durations.push_back(seconds);
  }
  const double num_left = static_cast<double>(*most) - steps.step.back() - 1;
  if (durations.empty()) return std::nan("");
  // The lower of two in the middle: one of them may be a clock that was set.
  const auto middle = durations.begin() + static_cast<std::ptrdiff_t>((durations.size() - 1) / 2);
  std::nth_element(durations.begin(), middle, durations.end());
  return std::max(0.0, num_left) * *middle;
}

}  // namespace automodel::report

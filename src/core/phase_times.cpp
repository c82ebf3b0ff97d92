#include "core/phase_times.h"

#include <algorithm>
#include <cmath>

#include "core/clock.h"
#include "core/text.h"

namespace automodel {

void PhaseTimes::end(std::string_view phase) {
  add(phase, monotonic_seconds() - last_seconds_);
}

void PhaseTimes::add(std::string_view phase, double seconds) {
  last_seconds_ += seconds;
  const auto known = std::find_if(phases_.begin(), phases_.end(),
                                  [&](const Phase& it) { return it.name == phase; });
  if (known != phases_.end()) {
    known->seconds += seconds;
  } else {
    phases_.push_back({std::string(phase), seconds});
  }
}

std::vector<std::string> table_of(const PhaseTimes& times) {
  constexpr double kTenthsOfMillisecond = 1e4;
  const auto padded = [](std::string text, size_t width) {
    return std::string(width - std::min(width, text.size()), ' ') + text;
  };
  size_t width = 0;
  for (const PhaseTimes::Phase& phase : times.phases()) width = std::max(width, phase.name.size());
  std::vector<std::string> lines;
  double sum = 0;
  double written = 0;  // tenths: each line is what brings their sum to the rounded sum
  for (const PhaseTimes::Phase& phase : times.phases()) {
    sum += phase.seconds;
    const double tenths = std::round(sum * kTenthsOfMillisecond) - written;
    written += tenths;
    const double share =
        times.total_seconds() > 0 ? 100 * phase.seconds / times.total_seconds() : 0;
    lines.push_back(cat(phase.name, std::string(width - phase.name.size(), ' '),
                        padded(format_fixed(tenths / 10, 1), 10), " ms",
                        padded(format_fixed(share, 1), 7), " %"));
  }
  return lines;
}

}  // namespace automodel

#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "report/records/run_files.h"

namespace automodel::report {

/// How an event is shown on a chart's time line.
struct MarkKind {
  std::string_view event;
  std::string_view words;  ///< of the legend
  std::string_view glyph;  ///< an SVG path from the mark's place; "" for none
  bool has_line = false;   ///< over the chart's whole height
  bool is_bad = false;     ///< in the colour of failures
};

/// Those that are most worth a mark come first.
inline constexpr std::array<MarkKind, 8> kMarkKinds = {
    {{"failure", "failed", "m-4-4 8 8m0-8-8 8", true, true},
     {"rollback", "rolled back", "m5-5v10l-9-5z", true, true},
     {"preempted", "stopped", "m-4-4h8v8h-8z", true, false},
     {"early_stop", "stopped early", "m-4-4h8v8h-8z", true, false},
     {"resume", "resumed", "", true, false},
     {"non_finite", "not finite", "m0-5 5 5-5 5-5-5z", false, true},
     {"skipped_update", "update left out", "m-4-4 8 8m0-8-8 8", false, false},
     {"advice", "advice", "m0-6 5 9h-10z", false, false}}};

/// An event, or several of a kind that are near to each other, at a row of a run's steps.
struct EventMark {
  size_t row = 0;
  size_t kind = 0;         ///< of kMarkKinds
  std::string short_text;  ///< "advice, step 12", "3 x skipped_update, steps 5 to 9"
  std::string text;        ///< the same with what the event says
};

/// The marks of a run's events in the order of the steps, `most` of them. An event with a step lies
/// at the first record that is not before it; what ends a process at the last record of that
/// process, whatever the clock said.
std::vector<EventMark> event_marks(const RecordedRun& run, size_t most);

}  // namespace automodel::report

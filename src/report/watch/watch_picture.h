#pragma once

#include <string>
#include <vector>

#include "report/records/run_files.h"

namespace automodel::report {

/// A terminal.
struct Terminal {
  int width = 80;
  int height = 24;
  bool has_color = false;
};

/// A text for a terminal in so many characters: cut, or filled up with spaces. Control characters
/// become '?', so that a name cannot move the cursor.
std::string fitted(const std::string& text, int width);

/// Runs as lines of text that fill a terminal of 40 x 12 or more: a line each with state, step,
/// loss, time left, memory against the plan and MFU, and below it what somebody should look at;
/// charts of loss, norm, learning rate, tokens/s and memory; the latest events.
std::vector<std::string> watch_picture(const std::vector<const RecordedRun*>& runs,
                                       const Terminal& terminal);

/// A step's record in a line: "a | step 5 of 100 | loss 2.3 | ...".
std::string step_text(const RecordedRun& run, size_t row);

/// An event in a line: "a | advice | step 5 | ...".
std::string event_text(const RecordedRun& run, const RunEvent& event);

/// What somebody should look at, in a line that begins with a mark: "! advice 12:34:56: ..."; ""
/// for nothing.
std::string alert_text(const RecordedRun& run);

}  // namespace automodel::report

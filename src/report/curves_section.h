#pragma once

#include <string>
#include <vector>

#include "report/run_files.h"

namespace automodel::report {

/// The charts of all metrics that a run has: each against steps, tokens and time (classes
/// `by-step`, `by-tokens`, `by-time`), linear and logarithmic (`linear`, `log`), of which the
/// page's switches show one.
std::string curves_section(const std::vector<RecordedRun>& runs);

}  // namespace automodel::report

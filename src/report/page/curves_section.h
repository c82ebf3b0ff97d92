#pragma once

#include <string>

#include "report/records/run_files.h"

namespace automodel::report {

/// What the pictures' colours, points and marks mean, and the charts of all metrics that a run has
/// and of a bounded number of further keys of its records: each against steps, tokens and time
/// (classes `by-step`, `by-tokens`, `by-time`), linear and logarithmic (`linear`, `log`), of which
/// the page's switches show one.
std::string curves_section(const RunViews& runs);

}  // namespace automodel::report

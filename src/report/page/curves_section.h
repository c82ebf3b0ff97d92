#pragma once

#include <string>

#include "report/records/run_files.h"

namespace automodel::report {

/// What the pictures' colours, points and marks mean, and the charts of all metrics that a run has
/// and of a bounded number of further keys of its records and validations: each against steps,
/// tokens and time (classes `by-step`, `by-tokens`, `by-time`), linear and logarithmic (`linear`,
/// `log`), of which the page's switches show one.
std::string curves_section(const RunViews& runs);

/// What a further key of the records is called: "MFU, %" for `mfu`, most as they are.
std::string title_of_extra(const std::string& key);

}  // namespace automodel::report

#pragma once

#include <string>
#include <vector>

#include "report/run_files.h"

namespace automodel::report {

/// One HTML page about runs, which needs nothing from elsewhere: what they are, their curves, what
/// differs between their recipes, where their time went, what happened to them. Switches work
/// without scripts; the page follows the reader's choice of light and dark, and prints.
std::string report_page(const std::vector<RecordedRun>& runs);

}  // namespace automodel::report

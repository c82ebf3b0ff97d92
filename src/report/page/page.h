#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/page/live_page.h"
#include "report/records/run_files.h"

namespace automodel::report {

/// One HTML page about runs, which needs nothing from elsewhere: what they are, their curves, what
/// differs between their recipes, where their time and memory went, what they were trained on, what
/// happened to them. Sections of what no run has recorded are not there. Switches work
/// without scripts; the page follows the reader's choice of light and dark, and prints. A `live`
/// one comes from a server and keeps itself up to date.
std::string report_page(const RunViews& runs, const std::optional<LivePage>& live = std::nullopt);
std::string report_page(const std::vector<RecordedRun>& runs,
                        const std::optional<LivePage>& live = std::nullopt);

}  // namespace automodel::report

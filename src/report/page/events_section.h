#pragma once

#include <string>

#include "report/records/run_files.h"

namespace automodel::report {

/// What runs say that somebody should look at: the latest advice of each kind. "" without any.
std::string advice_section(const RunViews& runs);

/// What happened to runs. Events that somebody who watches would be told of are always there, the
/// first and the latest where there are very many; of others, of a long run, the first and the
/// latest of each name. What is left out is counted.
std::string events_section(const RunViews& runs);

}  // namespace automodel::report

#pragma once

#include <string>

#include "report/records/run_files.h"

namespace automodel::report {

/// What a run has trained on: lengths of its sequences as a picture and a table, how much of them
/// is labelled and padding, and what packing made of them. "" where no run records it.
std::string data_section(const RunViews& runs);

}  // namespace automodel::report

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/records/run_files.h"

namespace automodel::report {

/// What takes memory, in bytes; NaN where it was not planned or not measured.
struct MemoryPart {
  std::string name;
  double planned = 0;
  double measured = 0;
};

/// The parts of the plan in its order, then what was measured besides at the highest peak.
std::vector<MemoryPart> memory_parts(const RecordedRun& run);

/// The highest peak that was measured, in bytes; NaN where none was.
double measured_peak(const RecordedRun& run);
/// The most that the plan counts, and on a CPU the program itself, in bytes; NaN without a plan.
double planned_peak(const RecordedRun& run);

/// Memory planned against measured, as tables and bars. "" where no run has either.
std::string memory_section(const RunViews& runs);

}  // namespace automodel::report

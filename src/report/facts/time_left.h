#pragma once

#include "report/records/run_files.h"

namespace automodel::report {

/// Seconds until a run's last step, at the median time of its latest steps; NaN when it is not
/// known or the run has ended. Steps before the last resume or rollback do not count, nor does what
/// a clock says that was set back.
double seconds_left(const RecordedRun& run);

}  // namespace automodel::report

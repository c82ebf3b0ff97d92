#pragma once

#include <string>

#include "distributed/pipeline/schedule.h"

namespace automodel::distributed {

/// What is wrong with a schedule's lists: an action that is missing, twice, on two ranks or before
/// what it needs of its own rank; "" when nothing is. The texts follow torch's.
std::string find_schedule_fault(const PipelineSchedule& schedule);

/// A schedule from torch's compute-only CSV: a row a rank, a cell an action, empty cells mean
/// nothing. `source` is named in errors. UserError for cells that are no such action and for what
/// find_schedule_fault finds.
PipelineSchedule parse_schedule_csv(const std::string& text, const std::string& source,
                                    const ScheduleShape& shape);

/// The number of stages that such a text speaks of: one more than the highest; 0 for none.
int count_csv_stages(const std::string& text);

/// A schedule as such a text.
std::string to_csv(const PipelineSchedule& schedule);

}  // namespace automodel::distributed

#pragma once

#include <string>

#include "distributed/pipeline/schedule.h"

namespace automodel::distributed {

/// What is wrong with a schedule's lists: an action that is missing, duplicated, on two ranks, or
/// before one that it needs on its own rank; "" when nothing is. The texts follow torch's.
std::string find_schedule_fault(const PipelineSchedule& schedule);

/// Parses torch's compute-only CSV: a row per rank, an action per cell; empty cells are skipped.
/// `source` is named in errors. Throws UserError for cells that are no such action and for what
/// find_schedule_fault finds.
PipelineSchedule parse_schedule_csv(const std::string& text, const std::string& source,
                                    const ScheduleShape& shape);

/// The number of stages in such a text: one more than the highest; 0 if it has none.
int count_csv_stages(const std::string& text);

}  // namespace automodel::distributed

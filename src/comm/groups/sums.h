#pragma once

#include <cstdint>
#include <vector>

#include "comm/groups/process_group.h"

namespace automodel::comm {

/// The sums of each value over the ranks of a group, in float64. Collective.
std::vector<double> sum_over(const ProcessGroup& group, std::vector<double> values);

double sum_over(const ProcessGroup& group, double value);

/// The largest of each value over the ranks of a group. Collective.
std::vector<int64_t> max_over(const ProcessGroup& group, std::vector<int64_t> values);

}  // namespace automodel::comm

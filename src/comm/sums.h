#pragma once

#include <vector>

#include "comm/process_group.h"

namespace automodel::comm {

/// The sums of each value over the ranks of a group, in float64. Collective.
std::vector<double> sum_over(const ProcessGroup& group, std::vector<double> values);

double sum_over(const ProcessGroup& group, double value);

}  // namespace automodel::comm

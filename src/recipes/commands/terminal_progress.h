#pragma once

#include <functional>
#include <string>

#include "core/long_work.h"

namespace automodel::recipes {

/// Does a command's work and returns its exit status. A terminal at stderr shows work that takes
/// long while it goes on; stdout and log files get nothing of that. `how_far` as of LongWork.
int with_terminal_progress(const std::string& name, const std::function<int()>& work,
                           const LongWork::HowFar& how_far = nullptr);

}  // namespace automodel::recipes

#pragma once

#include <ctime>

namespace automodel::test {

/// Seconds of a core that this thread has used: unlike time that has passed, they do not grow with
/// what else the machine does.
inline double thread_cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace automodel::test

#pragma once

#include <cstddef>
#include <functional>

namespace automodel {

/// Calls task(0) ... task(count - 1) once each, started in ascending order on up to num_threads
/// threads. When tasks throw, no new ones start, and the exception of the lowest one is rethrown.
void run_tasks(size_t count, int num_threads, const std::function<void(size_t)>& task);

}  // namespace automodel

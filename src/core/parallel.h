#pragma once

#include <cstddef>
#include <functional>

namespace automodel {

/// Calls task(0) ... task(count - 1), each once, from up to num_threads threads in ascending order
/// of their start. When tasks throw, no new ones start and the exception of the lowest is rethrown.
void run_tasks(size_t count, int num_threads, const std::function<void(size_t)>& task);

}  // namespace automodel

#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace automodel {

void run_tasks(size_t count, int num_threads, const std::function<void(size_t)>& task) {
  const size_t num_workers = std::min<size_t>(count, static_cast<size_t>(std::max(num_threads, 1)));
  std::vector<std::exception_ptr> failures(count);
  std::atomic<size_t> next = 0;
  std::atomic<bool> has_failed = false;
  const auto work = [&] {
    while (!has_failed) {
      const size_t index = next++;
      if (index >= count) return;
      try {
        task(index);
      } catch (...) {
        failures[index] = std::current_exception();
        has_failed = true;
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    for (size_t i = 1; i < num_workers; ++i) workers.emplace_back(work);
    if (num_workers > 0) work();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace automodel

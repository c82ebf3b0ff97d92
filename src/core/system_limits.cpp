#include "core/system_limits.h"

#include <sys/resource.h>

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/error.h"

namespace automodel {

void raise_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // where it is refused, the limit stays what it was
}

void check_open_files(int64_t count, const std::string& purpose) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  if (static_cast<int64_t>(limit.rlim_cur) >= count) return;
  throw UserError(cat("a process may have ", int64_t(limit.rlim_cur), " files open here, and ",
                      purpose, " needs up to ", count, ": raise the limit (ulimit -n ", count, ")"),
                  ExitCode::kRankFailed);
}

void check_threads(int count) {
  // What the threads wait for. It is opened before they are joined, whatever is thrown.
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_open = false;

    void wait() {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return is_open; });
    }
    void open() {
      const std::lock_guard lock(mutex);
      is_open = true;
      changed.notify_all();
    }
  };
  struct Opener {
    Gate& gate;
    ~Opener() { gate.open(); }
  };
  Gate gate;
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(count));
  const Opener opener{gate};
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([&gate] { gate.wait(); });
  } catch (const std::system_error& error) {
    const std::optional<std::string> shortage = thread_shortage(error);
    if (!shortage) throw;
    throw UserError(*shortage, ExitCode::kRankFailed);
  }
}

std::optional<std::string> thread_shortage(const std::exception& error) {
  const auto* failure = dynamic_cast<const std::system_error*>(&error);
  if (failure == nullptr || failure->code() != std::errc::resource_unavailable_try_again) return {};
  return "the system starts no more threads: raise the limit of processes (ulimit -u, pids.max "
         "of the control group) or of address space (ulimit -v), or use fewer threads "
         "(OMP_NUM_THREADS, dataloader.num_workers)";
}

}  // namespace automodel

#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tensor/batch.h"

namespace automodel::datasets {

/// A batch made by a worker.
struct PreparedBatch {
  tensor::Batch batch;
  std::string note;  ///< a message for the person at the terminal, or ""
};

/// Makes batches 0, 1, ..., num_batches - 1 on its own threads, at most `capacity` ahead, and
/// returns them in order. The destructor waits for the batches being made.
class Prefetcher final {
 public:
  using Make = std::function<PreparedBatch(int64_t batch)>;

  struct Options {
    int64_t num_batches = 0;
    int64_t num_threads = 1;
    int64_t capacity = 2;
  };

  /// `make` is called from several threads at once. Throws std::system_error when the system starts
  /// no more threads.
  Prefetcher(const Options& options, Make make);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next batch; nullopt after the last. Throws what `make` threw for it, also at every later
  /// call.
  std::optional<PreparedBatch> take();

 private:
  struct Slot {
    PreparedBatch batch;
    std::exception_ptr error;
  };

  void work();
  /// Tells the threads to end, which their destructors wait for.
  void stop();

  Options options_;
  Make make_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;
  int64_t next_made_ = 0;
  int64_t next_taken_ = 0;
  std::map<int64_t, Slot> ready_;
  std::vector<std::jthread> threads_;
};

}  // namespace automodel::datasets

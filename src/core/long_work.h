#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "core/file.h"
#include "core/reporter.h"

namespace automodel {

struct LongWorkOptions {
  double show_after_seconds = 2;  ///< shorter work is not shown
  double show_seconds = 0.5;      ///< period of the line on a terminal
  double report_seconds = 10;     ///< period of lines of the log
};

/// Tells of work that takes long while it goes on: `loading the weights for 12 s: 3.1 GiB, 260
/// MiB/s`, as the line of progress where a terminal shows one, and now and then as a line of the
/// log. Short work leaves no trace. Of work within work of the same thread the innermost is told.
class LongWork final {
 public:
  /// How far the work is, in words; "" where there is nothing to say.
  using HowFar = std::function<std::string()>;

  /// The work begins now. A thread of its own asks `how_far`, which may be null; so it is nothing
  /// to count with an object that the work changes without a lock. A null reporter hears nothing.
  LongWork(Reporter* reporter, std::string name, HowFar how_far = nullptr,
           const LongWorkOptions& options = {});
  /// The work has ended: removes the line of progress.
  ~LongWork();
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;

 private:
  void tell_until_ended();
  std::string text() const;

  Reporter* reporter_;
  LongWork* outer_ = nullptr;            // of the same thread
  std::atomic<bool> is_in_front_{true};  // no work within this one goes on
  std::string name_;
  HowFar how_far_;
  LongWorkOptions options_;
  double begin_seconds_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_ended_ = false;
  bool is_shown_ = false;
  std::thread thread_;  // last: it reads the others
};

/// "3.1 GiB, 260 MiB/s": what `bytes` has grown by since this call, "" while it is nothing.
LongWork::HowFar bytes_moved(const ByteCounter& bytes);

}  // namespace automodel

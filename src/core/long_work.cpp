#include "core/long_work.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/clock.h"
#include "core/text.h"

namespace automodel {

namespace {

thread_local LongWork* innermost = nullptr;

}  // namespace

LongWork::LongWork(Reporter* reporter, std::string name, HowFar how_far,
                   const LongWorkOptions& options)
    : reporter_(reporter),
      name_(std::move(name)),
      how_far_(std::move(how_far)),
      options_(options),
      begin_seconds_(monotonic_seconds()) {
  if (reporter_ == nullptr) return;
  outer_ = std::exchange(innermost, this);
  if (outer_ != nullptr) outer_->is_in_front_ = false;
  thread_ = std::thread([this] { tell_until_ended(); });
}

LongWork::~LongWork() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ended_ = true;
  }
  ended_.notify_all();
  thread_.join();
  if (is_shown_) reporter_->progress("");
  innermost = outer_;
  if (outer_ != nullptr) outer_->is_in_front_ = true;
}

std::string LongWork::text() const {
  const std::string far = how_far_ ? how_far_() : "";
  return cat(name_, " for ", format_duration(monotonic_seconds() - begin_seconds_),
             far.empty() ? "" : ": ", far);
}

void LongWork::tell_until_ended() {
  double show_at = begin_seconds_ + options_.show_after_seconds;
  double report_at = begin_seconds_ + options_.report_seconds;
  const bool shows = reporter_->shows_progress();
  std::unique_lock lock(mutex_);
  while (true) {
    const double next = shows ? std::min(show_at, report_at) : report_at;
    const std::chrono::duration<double> wait(next - monotonic_seconds());
    if (ended_.wait_for(lock, wait, [this] { return is_ended_; })) return;
    const double now = monotonic_seconds();
    if (now < next) continue;
    const std::string line = is_in_front_ ? text() : "";
    if (now >= show_at) {
      if (shows && !line.empty()) {
        reporter_->progress(line);
        is_shown_ = true;
      }
      show_at = now + options_.show_seconds;
    }
    if (now >= report_at) {
      if (!line.empty()) reporter_->info(line);
      report_at = now + options_.report_seconds;
    }
  }
}

LongWork::HowFar bytes_moved(const ByteCounter& bytes) {
  return [&bytes, from = bytes.load(), begin = monotonic_seconds()]() -> std::string {
    const uint64_t moved = bytes.load() - from;
    if (moved == 0) return "";
    const double seconds = std::max(monotonic_seconds() - begin, 1e-3);
    const double speed = static_cast<double>(moved) / seconds;
    return cat(format_bytes(moved), ", ", format_bytes(static_cast<uint64_t>(speed)), "/s");
  };
}

}  // namespace automodel

#include "comm/device_watch.h"

#include <chrono>
#include <utility>

#include "core/clock.h"

namespace automodel::comm {

DeviceWatch::DeviceWatch(std::shared_ptr<FailureWatch> watch, WatchedGroup everybody,
                         const DeviceWatchOptions& options)
    : watch_(std::move(watch)),
      everybody_(std::move(everybody)),
      options_(options),
      next_beat_since_(monotonic_seconds()),
      last_group_(everybody_.name) {
  thread_ = std::thread([this] { look_until_stopped(); });
}

DeviceWatch::~DeviceWatch() {
  stop();
}

void DeviceWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (watch_->failure()) abort_groups();
}

void DeviceWatch::guard(std::shared_ptr<GroupBackend> backend) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(std::move(backend));
}

void DeviceWatch::follow(const WatchedCall& call, const MakeMark& make_mark) {
  const std::lock_guard lock(mutex_);
  last_operation_ = call.operation;
  last_group_ = call.group.name;
  Followed& followed = followed_[call.group.name];
  if (followed.mark == nullptr) followed.mark = make_mark();
  if (followed.mark == nullptr) return;
  if (followed.marked) {
    followed.newer = call;
  } else {
    followed.mark->set();
    followed.marked = call;
  }
}

/// The oldest operation that the device has not done within its group's timeout.
std::optional<WatchedCall> DeviceWatch::late_call() {
  const std::lock_guard lock(mutex_);
  std::optional<WatchedCall> oldest;
  for (auto& [name, followed] : followed_) {
    if (!followed.marked) continue;
    if (followed.mark->is_reached()) {
      followed.marked = std::exchange(followed.newer, std::nullopt);
      if (followed.marked) followed.mark->set();
    } else if (monotonic_seconds() - followed.marked->begin_seconds >
               followed.marked->group.timeout_seconds) {
      if (!oldest || followed.marked->begin_seconds < oldest->begin_seconds) {
        oldest = followed.marked;
      }
    }
  }
  return oldest;
}

/// Every rank looks after one other, on whatever host: of those that are lost one at least is
/// looked after by a rank that is there.
bool DeviceWatch::has_lost_next_rank() {
  const auto count = static_cast<int>(everybody_.ranks.size());
  const std::string beat = watch_->beat_of((watch_->rank() + 1) % count);
  if (beat != next_beat_) {
    next_beat_ = beat;
    next_beat_since_ = monotonic_seconds();
  }
  return monotonic_seconds() - next_beat_since_ > options_.lost_seconds;
}

/// What texts say everybody was in when a rank was lost.
WatchedCall DeviceWatch::call_of_everybody() {
  const std::lock_guard lock(mutex_);
  WatchedGroup group = everybody_;
  group.name = last_group_;
  return {std::move(group), last_operation_, std::nullopt, 0, monotonic_seconds()};
}

void DeviceWatch::look_until_stopped() {
  std::unique_lock lock(mutex_);
  while (!is_stopped_) {
    lock.unlock();
    try {
      if (const auto late = late_call()) {
        watch_->explain(*late, "the device has not done it in time");
      } else if (!watch_->failure() &&
                 (watch_->has_lost_peer(everybody_) || has_lost_next_rank())) {
        watch_->explain(call_of_everybody(), "a peer is gone");
      }
    } catch (const StoreGone&) {
      watch_->explain(call_of_everybody(), "the store is gone");
    }
    if (watch_->failure()) {
      abort_groups();
      return;
    }
    lock.lock();
    stopped_.wait_for(lock, std::chrono::duration<double>(options_.period_seconds),
                      [this] { return is_stopped_; });
  }
}

void DeviceWatch::abort_groups() {
  std::vector<std::shared_ptr<GroupBackend>> groups;
  {
    const std::lock_guard lock(mutex_);
    groups = std::exchange(groups_, {});
    followed_.clear();
  }
  for (const auto& group : groups) {
    try {
      group->abort();
    } catch (const std::exception&) {
      // The cause is known to all; the other groups' waits must end too.
    }
  }
}

}  // namespace automodel::comm

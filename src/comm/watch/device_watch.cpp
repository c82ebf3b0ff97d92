#include "comm/watch/device_watch.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "comm/store/tcp_store.h"
#include "comm/watch/device_errors.h"
#include "core/clock.h"

namespace automodel::comm {

DeviceWatch::DeviceWatch(std::shared_ptr<FailureWatch> watch, WatchedGroup everybody,
                         const DeviceWatchOptions& options)
    : watch_(std::move(watch)),
      everybody_(std::move(everybody)),
      options_(options),
      last_group_(everybody_.name) {
  thread_ = std::thread([this] { look_until_stopped(); });
}

DeviceWatch::~DeviceWatch() {
  stop();
  abort_groups();  // their destructors would give them up one by one
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

class DeviceWatch::Followed final {
 public:
  explicit Followed(WatchedCall entered) : call(std::move(entered)) {}

  const WatchedCall call;
  std::unique_ptr<StreamMark> begin, end;
  bool is_left = false;                     // guarded by the watch's mutex
  std::optional<double> can_start_seconds;  // the watch's thread's: when it was seen
};

std::shared_ptr<DeviceWatch::Followed> DeviceWatch::enter(const WatchedCall& call,
                                                          const MakeMark& make_mark) {
  auto followed = std::make_shared<Followed>(call);
  {
    const std::lock_guard lock(mutex_);
    last_operation_ = call.operation;
    last_group_ = call.group.name;
    auto& free = free_marks_[call.group.name];
    for (std::unique_ptr<StreamMark>* mark : {&followed->begin, &followed->end}) {
      if (free.empty()) continue;
      *mark = std::move(free.back());
      free.pop_back();
    }
  }
  for (std::unique_ptr<StreamMark>* mark : {&followed->begin, &followed->end}) {
    if (*mark == nullptr) *mark = make_mark();
    if (*mark == nullptr) return nullptr;
  }
  followed->begin->set();
  const std::lock_guard lock(mutex_);
  followed_[call.group.name].push_back(followed);
  return followed;
}

void DeviceWatch::leave(const std::shared_ptr<Followed>& followed) {
  if (followed == nullptr) return;
  followed->end->set();
  const std::lock_guard lock(mutex_);
  followed->is_left = true;
}

/// The oldest operation of each group, since those of one communicator come one behind the other.
/// Operations that nobody waits for any more are left out.
std::vector<std::shared_ptr<DeviceWatch::Followed>> DeviceWatch::oldest_of_groups() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Followed>> oldest;
  for (auto& [name, line] : followed_) {
    while (!line.empty() && !line.front()->is_left && line.front().use_count() == 1) {
      line.pop_front();
    }
    if (!line.empty()) oldest.push_back(line.front());
  }
  return oldest;
}

/// Whether the device has done it. Asks the device, which may take a while or throw: without the
/// mutex, which the host's next operation needs.
bool DeviceWatch::has_moved(Followed& followed) {
  if (!followed.can_start_seconds) {
    if (!followed.begin->is_reached()) return false;
    followed.can_start_seconds = clock_.seconds();
  }
  {
    const std::lock_guard lock(mutex_);
    if (!followed.is_left) return false;
  }
  return followed.end->is_reached();
}

void DeviceWatch::end(const std::shared_ptr<Followed>& followed) {
  const std::lock_guard lock(mutex_);
  const std::string& name = followed->call.group.name;
  std::erase(followed_[name], followed);
  free_marks_[name].push_back(std::move(followed->begin));
  free_marks_[name].push_back(std::move(followed->end));
}

/// The oldest operation that the device has not done within its group's timeout.
std::optional<WatchedCall> DeviceWatch::late_call() {
  std::optional<WatchedCall> late;
  std::vector<std::shared_ptr<Followed>> oldest = oldest_of_groups();
  while (!oldest.empty()) {
    bool has_any_moved = false;
    for (const std::shared_ptr<Followed>& it : oldest) {
      if (has_moved(*it)) {
        end(it);
        has_any_moved = true;
        continue;
      }
      const WatchedCall& call = it->call;
      const bool is_late = it->can_start_seconds &&
                           clock_.seconds() - *it->can_start_seconds > call.group.timeout_seconds;
      if (is_late && (!late || call.begin_seconds < late->begin_seconds)) late = call;
    }
    if (!has_any_moved) break;
    oldest = oldest_of_groups();
  }
  return late;
}

/// Every rank looks after one other, on whatever host: of those that are lost one at least is
/// looked after by a rank that is there.
bool DeviceWatch::has_lost_next_rank() {
  const auto count = static_cast<int>(everybody_.ranks.size());
  const std::string beat = watch_->beat_of((watch_->rank() + 1) % count);
  return next_silence_.seconds(beat, clock_.seconds()) > options_.lost_seconds;
}

/// What texts say everybody was in when a rank was lost.
WatchedCall DeviceWatch::call_of_everybody() {
  const std::lock_guard lock(mutex_);
  WatchedGroup group = everybody_;
  group.name = last_group_;
  return {std::move(group), last_operation_, std::nullopt, 0, monotonic_seconds()};
}

void DeviceWatch::look() {
  try {
    if (const auto late = late_call()) {
      watch_->explain(*late, "the device has not done it in time");
    } else if (!watch_->failure() && (watch_->has_lost_peer(everybody_) || has_lost_next_rank())) {
      watch_->explain(call_of_everybody(), "a peer is gone");
    }
  } catch (const StoreGone&) {
    watch_->explain(call_of_everybody(), "the store is gone");
  } catch (const std::exception& error) {
    // The device's errors stay: whoever asks it for anything gets the same.
    const auto text = device_failure(error);
    watch_->tell(text ? *text : cat("the device cannot be asked: ", reason_of(error.what())));
  }
}

void DeviceWatch::look_until_stopped() {
  std::unique_lock lock(mutex_);
  while (!is_stopped_) {
    lock.unlock();
    look();
    if (const auto cause = watch_->failure()) {
      if (!abort_groups()) end_process(*cause);
      return;
    }
    lock.lock();
    stopped_.wait_for(lock, std::chrono::duration<double>(options_.period_seconds),
                      [this] { return is_stopped_; });
  }
}

void DeviceWatch::end_process(const std::string& cause) {
  if (options_.end_process) return options_.end_process(cause);
  std::fprintf(stderr, "rank %d: %s (the device's groups could not be given up)\n", watch_->rank(),
               cause.c_str());
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(ExitCode::kRankFailed));
}

/// All at the same time: NCCL gives a communicator up once its operations have ended, which may
/// wait for those of another one. False when they have not all been given up in time; then their
/// threads go on, with what they need.
bool DeviceWatch::abort_groups() {
  std::vector<std::shared_ptr<GroupBackend>> groups;
  {
    const std::lock_guard lock(mutex_);
    groups = std::exchange(groups_, {});
    followed_.clear();
  }
  struct Countdown {
    std::mutex mutex;
    std::condition_variable changed;
    size_t num_left = 0;
  };
  const auto countdown = std::make_shared<Countdown>();
  countdown->num_left = groups.size();
  for (std::shared_ptr<GroupBackend>& group : groups) {
    std::thread([group = std::move(group), countdown]() mutable {
      try {
        group->abort();
      } catch (const std::exception&) {
        // The cause is known to all; the other groups' waits must end too.
      }
      group.reset();
      const std::lock_guard lock(countdown->mutex);
      countdown->num_left -= 1;
      countdown->changed.notify_all();
    }).detach();
  }
  std::unique_lock lock(countdown->mutex);
  return countdown->changed.wait_for(lock, std::chrono::duration<double>(options_.abort_seconds),
                                     [&] { return countdown->num_left == 0; });
}

}  // namespace automodel::comm

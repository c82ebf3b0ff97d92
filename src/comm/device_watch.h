#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/failure_watch.h"

namespace automodel::comm {

/// Makes a mark of the stream that has just waited for an operation.
using MakeMark = std::function<std::unique_ptr<StreamMark>()>;

struct DeviceWatchOptions {
  double period_seconds = 0.25;  ///< of looking after peers and marks
  double lost_seconds = 10.0;    ///< without a sign of life a rank counts as vanished
};

/// Looks after what a device does while the host goes on. The host waits for the device in places
/// where nobody knows of groups, and for ever when a peer is gone: a thread notices failures,
/// peers that end and operations that take longer than their group's timeout, and aborts every
/// group, which ends the host's wait too. What the host then reads is worthless: its next operation
/// of any group throws the cause.
class DeviceWatch final {
 public:
  DeviceWatch(std::shared_ptr<FailureWatch> watch, WatchedGroup everybody,
              const DeviceWatchOptions& options = {});
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  /// A group that is aborted, once, when anything fails.
  void guard(std::shared_ptr<GroupBackend> backend);
  /// The present stream is behind an operation from now on: it has to get there in time.
  void follow(const WatchedCall& call, const MakeMark& make_mark);
  /// Ends the thread; aborts the groups when a failure is known.
  void stop();

 private:
  /// The newest operations of a group. One mark serves them: it is set anew once it was reached.
  struct Followed {
    std::unique_ptr<StreamMark> mark;
    std::optional<WatchedCall> marked;
    std::optional<WatchedCall> newer;
  };

  void look_until_stopped();
  std::optional<WatchedCall> late_call();
  bool has_lost_next_rank();
  WatchedCall call_of_everybody();
  void abort_groups();

  std::shared_ptr<FailureWatch> watch_;
  WatchedGroup everybody_;
  DeviceWatchOptions options_;
  std::string next_beat_;  // of the rank after this one, and since when it is the same
  double next_beat_since_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable stopped_;
  bool is_stopped_ = false;
  std::vector<std::shared_ptr<GroupBackend>> groups_;
  std::map<std::string, Followed> followed_;  // by the group's name
  std::string last_operation_ = "start";
  std::string last_group_;
  std::thread thread_;
};

}  // namespace automodel::comm

#pragma once

#include <condition_variable>
#include <deque>
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

/// Makes a mark for streams of a group's device.
using MakeMark = std::function<std::unique_ptr<StreamMark>()>;

struct DeviceWatchOptions {
  double period_seconds = 0.25;  ///< of looking after peers and marks
  double lost_seconds = 10.0;    ///< without a sign of life a rank counts as vanished
  double abort_seconds = 10.0;   ///< for giving up all groups
  /// The groups could not be given up, so the host may wait for its device for ever: is given the
  /// cause and ends the process. Absent: a line on stderr and status 4.
  std::function<void(const std::string& cause)> end_process;
};

/// Looks after what a device does while the host goes on. The host waits for the device in places
/// where nobody knows of groups, and for ever when a peer is gone: a thread notices failures,
/// peers that end and operations that take longer than their group's timeout, and aborts every
/// group, which ends the host's wait too. What the host then reads is worthless: its next operation
/// of any group throws the cause. A device that fails by itself is its rank's own failure.
class DeviceWatch final {
 public:
  DeviceWatch(std::shared_ptr<FailureWatch> watch, WatchedGroup everybody,
              const DeviceWatchOptions& options = {});
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  /// A group that is aborted, once, when anything fails.
  void guard(std::shared_ptr<GroupBackend> backend);
  /// An operation on its way through the device.
  class Followed;
  /// The present stream comes to an operation, which is about to be started behind it. The result
  /// is null where the group has no marks. Throws what the device says.
  std::shared_ptr<Followed> enter(const WatchedCall& call, const MakeMark& make_mark);
  /// The present stream is behind it: from when the device has come to its beginning, it has to get
  /// to its end in time.
  void leave(const std::shared_ptr<Followed>& followed);
  /// Ends the thread; aborts the groups when a failure is known.
  void stop();

 private:
  void look_until_stopped();
  void look();
  std::optional<WatchedCall> late_call();
  std::vector<std::shared_ptr<Followed>> oldest_of_groups();
  bool has_moved(Followed& followed);
  void end(const std::shared_ptr<Followed>& followed);
  bool has_lost_next_rank();
  WatchedCall call_of_everybody();
  bool abort_groups();
  void end_process(const std::string& cause);

  std::shared_ptr<FailureWatch> watch_;
  WatchedGroup everybody_;
  DeviceWatchOptions options_;
  std::string next_beat_;  // of the rank after this one, and since when it is the same
  double next_beat_since_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable stopped_;
  bool is_stopped_ = false;
  std::vector<std::shared_ptr<GroupBackend>> groups_;
  /// By the group's name, in their order; the marks of those that are over serve again.
  std::map<std::string, std::deque<std::shared_ptr<Followed>>> followed_;
  std::map<std::string, std::vector<std::unique_ptr<StreamMark>>> free_marks_;
  std::string last_operation_ = "start";
  std::string last_group_;
  std::thread thread_;
};

}  // namespace automodel::comm

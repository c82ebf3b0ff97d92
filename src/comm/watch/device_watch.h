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

#include "comm/groups/group_backend.h"
#include "comm/watch/beat.h"
#include "comm/watch/failure_watch.h"
#include "core/awake_clock.h"

namespace automodel::comm {

/// Makes a mark for the streams of a group's device.
using MakeMark = std::function<std::unique_ptr<StreamMark>()>;

struct DeviceWatchOptions {
  double period_seconds = 0.25;  ///< between checks of peers and marks
  double lost_seconds = 10.0;    ///< a rank without a sign of life for so long has vanished
  double abort_seconds = 10.0;   ///< limit for aborting all groups
  /// Called with the cause when groups could not be aborted, so that the host might wait for its
  /// device forever; must end the process. Absent: prints a line on stderr and exits with status 4.
  std::function<void(const std::string& cause)> end_process;
};

/// Watches what a device does while the host continues. The host waits for the device in code that
/// knows nothing of groups, and would wait forever if a peer is gone. So a thread notices failures,
/// peers that end and operations that exceed their group's timeout, and aborts every group, which
/// also ends the host's wait. The data that the host then reads are invalid; its next operation on
/// any group throws the cause. A device that fails by itself counts as its own rank's failure.
class DeviceWatch final {
 public:
  DeviceWatch(std::shared_ptr<FailureWatch> watch, WatchedGroup everybody,
              const DeviceWatchOptions& options = {});
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  /// Adds a group to abort, once, when anything fails.
  void guard(std::shared_ptr<GroupBackend> backend);
  /// An operation that a device has been given.
  class Followed;
  /// Called before an operation is started on the current stream. Returns null for a group without
  /// marks. Throws the device's error.
  std::shared_ptr<Followed> enter(const WatchedCall& call, const MakeMark& make_mark);
  /// Called after it was started: once the device has reached the operation's beginning, it must
  /// reach the end within the timeout.
  void leave(const std::shared_ptr<Followed>& followed);
  /// Ends the thread; aborts the groups if a failure is known.
  void stop();

 private:
  /// What a look at all operations takes at most, unless the process stood still.
  static constexpr double kLongestRoundSeconds = 2;

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
  AwakeClock clock_{kLongestRoundSeconds};  // the thread's, by which it finds what is late
  Silence next_silence_;                    // of the next rank
  std::mutex mutex_;                        // guards the members below
  std::condition_variable stopped_;
  bool is_stopped_ = false;
  std::vector<std::shared_ptr<GroupBackend>> groups_;
  /// By group name, in order of their start; marks of finished ones are reused.
  std::map<std::string, std::deque<std::shared_ptr<Followed>>> followed_;
  std::map<std::string, std::vector<std::unique_ptr<StreamMark>>> free_marks_;
  std::string last_operation_ = "start";
  std::string last_group_;
  std::thread thread_;
};

}  // namespace automodel::comm

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "core/reporter.h"
#include "trackers/tracker.h"

namespace automodel::trackers {

struct QueueOptions {
  size_t most_values = 200'000;  ///< numbers that may wait, about 20 MB; beyond, the oldest go
  size_t most_at_once = 1000;    ///< records of one delivery at most
  double pause_seconds = 0;      ///< between deliveries, so that each has more records
  double backoff_seconds = 1;    ///< before the second attempt; doubled with each
  double longest_backoff_seconds = 60;
  int num_last_attempts = 3;  ///< in a row, once the run has ended
};

/// What became of a run's records.
struct Tally {
  std::string tracker;
  int64_t num_sent = 0;
  int64_t num_lost = 0;
  bool has_started = false;   ///< the tracker knows of the run
  bool has_finished = false;  ///< and of its end
  std::string problem;        ///< the last one; "" when there was none
};

/// Hands on what a thread says until the reporter is gone. Any thread.
class LeavingReporter final : public Reporter {
 public:
  /// `reporter` outlives this object, or leave() is called before it is gone.
  explicit LeavingReporter(Reporter& reporter) : reporter_(&reporter) {}

  void info(std::string_view text) override;
  void warning(std::string_view text) override;
  void error(std::string_view text) override;
  /// From now on nothing is said.
  void leave();

 private:
  std::mutex mutex_;
  Reporter* reporter_;
};

/// A tracker behind a bounded queue and a thread of its own: whoever adds a record never waits for
/// the tracker. What fails is tried again, with longer pauses, until the run ends; the reporter
/// hears of the first failure and of the recovery, and end() counts what was lost.
class BackgroundTracker final {
 public:
  /// The reporter may be the tracker's too.
  BackgroundTracker(std::unique_ptr<Tracker> tracker, const QueueOptions& options,
                    std::shared_ptr<LeavingReporter> reporter);
  /// Gives up what waits.
  ~BackgroundTracker();
  BackgroundTracker(const BackgroundTracker&) = delete;
  BackgroundTracker& operator=(const BackgroundTracker&) = delete;

  /// Any thread; takes microseconds. After end() the record is lost.
  void add(std::shared_ptr<const Record> record);

  /// Hands over what waits and tells the tracker of the end. Gives up after `most_seconds`, and
  /// returns within two more: a call that does not come back is left behind. Call once.
  Tally end(RunEnd how, double most_seconds);

 private:
  struct State;
  static void work(State& state);
  std::shared_ptr<State> state_;  // the thread's too
  std::thread thread_;
};

}  // namespace automodel::trackers

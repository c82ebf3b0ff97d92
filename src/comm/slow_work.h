#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/failure_watch.h"
#include "comm/store.h"
#include "core/reporter.h"

namespace automodel::comm {

struct SlowWorkOptions {
  /// A rank at work whose progress stands still for so long is given up.
  double stall_seconds = 1800;
  double report_seconds = 10;    ///< period of lines about work that takes long
  double silence_seconds = 30;   ///< a rank without a sign of life for so long is looked for
  Reporter* reporter = nullptr;  ///< hears of work that takes long; may be null
};

/// Lets ranks wait for each other's work on files, of which nobody can say how long it takes: as
/// long as every rank lives and comes forward, the wait has no end. No collective is under way
/// meanwhile, so no timeout of one can run out: ranks meet in the store.
class SlowWork final {
 public:
  /// A world of one, or `size` ranks. Two connections of its own to the store are made; a thread
  /// tells the others of this rank's progress.
  SlowWork();
  SlowWork(Store& store, std::shared_ptr<FailureWatch> watch, WatchedGroup world,
           const SlowWorkOptions& options);
  ~SlowWork();
  SlowWork(const SlowWork&) = delete;
  SlowWork& operator=(const SlowWork&) = delete;

  /// Bytes this rank has moved, all work together; work adds to it.
  std::atomic<uint64_t>& progress();

  /// Runs `work` while the other ranks run theirs of the same name ("saving"), and returns when all
  /// are through. When it failed anywhere, nobody is at work any more when this throws: the work's
  /// own exception, else PeerFailure with the text of the first rank that failed. Also throws
  /// PeerFailure when a rank ends, vanishes or makes no progress. Called by all ranks in the same
  /// order.
  void run(const std::string& name, const std::function<void()>& work);

  /// Whether all ranks were through when the last run() ended, so that nobody was at work any more.
  bool has_met() const { return has_met_; }

 private:
  struct State;
  std::atomic<uint64_t> progress_{0};  // before what reads it from a thread of its own
  std::unique_ptr<State> state_;
  bool has_met_ = false;
};

}  // namespace automodel::comm

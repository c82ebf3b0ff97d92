#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/store/store.h"
#include "comm/watch/failure_watch.h"
#include "core/reporter.h"

namespace automodel::comm {

struct SlowWorkOptions {
  /// Names the object's keys in the store, and the work in texts: no two of a world share it.
  std::string name = "slow";
  /// The run ends when a working rank makes no progress for so long.
  double stall_seconds = 1800;
  bool is_beside_training = false;  ///< waiting in it says nothing of what the rank does
  double report_seconds = 10;       ///< period of reports on long work
  double silence_seconds = 30;      ///< a rank without a sign of life for so long is checked
  /// Hears of long work on the first rank of the world while it goes on; may be null. Work beside
  /// training is told of in the log only.
  Reporter* reporter = nullptr;
};

/// Makes ranks wait for each other's work on files, whose duration nobody knows: there is no limit
/// as long as every rank is alive and makes progress. Ranks meet in the store, and no collective is
/// under way meanwhile, so no collective's timeout can expire.
class SlowWork final {
 public:
  /// For a world of one.
  explicit SlowWork(const SlowWorkOptions& options = {});
  /// For the ranks of `world`. Makes two connections to the store of its own; a thread publishes
  /// this rank's progress.
  SlowWork(Store& store, std::shared_ptr<FailureWatch> watch, WatchedGroup world,
           const SlowWorkOptions& options);
  ~SlowWork();
  SlowWork(const SlowWork&) = delete;
  SlowWork& operator=(const SlowWork&) = delete;

  /// Number of bytes that this rank has moved, in all work together; work adds to it.
  std::atomic<uint64_t>& progress();

  /// Runs `work` while the other ranks run theirs of the same name ("saving"), and returns when all
  /// have finished. If it failed on any rank, this throws after all have stopped: the work's own
  /// exception, else PeerFailure with the text of the first rank that failed. Also throws
  /// PeerFailure when a rank ends, vanishes or makes no progress. All ranks call it in the same
  /// order.
  void run(const std::string& name, const std::function<void()>& work);

  /// Whether all ranks had stopped working when the last run() ended.
  bool has_met() const { return has_met_; }

 private:
  struct State;
  std::atomic<uint64_t> progress_{0};  // declared before the members whose threads read it
  SlowWorkOptions options_;            // of a world of one
  std::unique_ptr<State> state_;
  bool has_met_ = false;
};

}  // namespace automodel::comm

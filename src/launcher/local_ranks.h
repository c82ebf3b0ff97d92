#pragma once

#include <functional>
#include <memory>
#include <string>

namespace automodel::launcher {

/// One rank of a local run.
struct LocalRank {
  int rank = 0;
  int num_ranks = 1;
  int port = 0;         ///< where the run's store listens on 127.0.0.1
  int num_threads = 1;  ///< threads_per_rank() of this machine
};

/// What a rank's work came to.
struct RankOutcome {
  int status = 0;       ///< exit status
  std::string failure;  ///< why, when the launcher shall say it; "": the rank said it itself

  RankOutcome(int exit_status) : status(exit_status) {}
  RankOutcome(int exit_status, std::string text) : status(exit_status), failure(std::move(text)) {}
};

/// Why a run failed.
struct RunFailure {
  int rank = -1;  ///< that failed first; -1: none, the run was stopped
  int status = 0;
  std::string text;  ///< "rank 1: text", "rank 1 (pid 123) was killed by signal 9 (Killed)"
};

/// What the launcher calls.
struct LocalRun {
  /// A rank's whole work, in its own process. Throws nothing.
  std::function<RankOutcome(const LocalRank&)> rank_main;
  /// Serves the run's store in the launching process, on a listening descriptor that it takes over;
  /// the result is kept until all ranks have ended. Called after the ranks exist, since a process
  /// with threads cannot be forked safely.
  std::function<std::shared_ptr<void>(int listening_fd, int port, int num_ranks)> serve_store;
  /// Says why the run failed, once. Absent: a line on stderr.
  std::function<void(const RunFailure&)> report;
  /// Survivors of a failure notice it in their next collective and leave by themselves; those that
  /// do not are sent SIGTERM after half this time, and SIGKILL when they stay for the other half.
  double grace_seconds = 4.0;
};

/// Starts `num_ranks` ranks as children of this process, waits for them, and returns the run's exit
/// status: that of the first rank that failed by itself (ranks that only report a peer's failure,
/// status 4, give way to it), 128 + n when it was killed by signal n; 75 when ranks saved after a
/// preemption signal. SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 are passed on. Ranks end with
/// this process, whatever ends it. Must be called while the process has no other thread. Throws
/// UserError when ranks cannot be started.
int run_local_ranks(int num_ranks, const LocalRun& run);

/// Cores this process may use.
int num_usable_cores();

}  // namespace automodel::launcher

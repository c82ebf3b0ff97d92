#pragma once

#include <functional>
#include <memory>

namespace automodel::launcher {

/// One rank of a local run.
struct LocalRank {
  int rank = 0;
  int num_ranks = 1;
  int port = 0;         ///< where the run's store listens on 127.0.0.1
  int num_threads = 1;  ///< cores of this machine / ranks, at least 1
};

/// What the launcher calls.
struct LocalRun {
  /// A rank's whole work, in its own process; returns its exit status. Throws nothing.
  std::function<int(const LocalRank&)> rank_main;
  /// Serves the run's store in the launching process, on a listening descriptor that it takes over;
  /// the result is kept until all ranks have ended. Called after the ranks exist, since a process
  /// with threads cannot be forked safely.
  std::function<std::shared_ptr<void>(int listening_fd, int port, int num_ranks)> serve_store;
};

/// Starts `num_ranks` ranks as children of this process, waits for them, and returns the run's exit
/// status: that of the first rank that failed, 128 + n when it was killed by signal n. As soon as
/// one fails the others are asked to stop and, five seconds later, killed. SIGTERM, SIGINT, SIGHUP,
/// SIGUSR1 and SIGUSR2 are passed on. Ranks end with this process, whatever ends it. Must be called
/// while the process has no other thread. Throws UserError when ranks cannot be started.
int run_local_ranks(int num_ranks, const LocalRun& run);

/// Cores this process may use.
int num_usable_cores();

}  // namespace automodel::launcher

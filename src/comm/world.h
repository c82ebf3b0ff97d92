#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "comm/slow_work.h"
#include "comm/store_server.h"
#include "core/reporter.h"

namespace automodel::comm {

/// How a rank finds the others.
struct WorldOptions {
  int rank = 0;
  int size = 1;
  std::string host = "127.0.0.1";  ///< where the store listens
  int port = 0;
  bool hosts_store = false;       ///< this rank serves the store (nobody else does)
  bool is_agents_store = false;   ///< torchrun's agent serves it, as c10d does
  bool is_one_machine = true;     ///< no rank is on another: the store may listen on the loopback
  std::string secret;             ///< the run's: who does not know it is refused by its store
  double timeout_seconds = 60;    ///< of every wait: for the others' start, in a collective
  std::string run_id;             ///< keeps attempts that share a store apart (torchrun restarts)
  std::string network_interface;  ///< "eth0": for ranks on several hosts; "": by the host's name
  std::string store_place = "the launcher";  ///< who serves the store, in texts: "rank 0"
  bool may_share_memory = true;  ///< else groups of one host's ranks talk over its loopback too
  /// While devices work, a rank without a sign of life for so long counts as vanished.
  double lost_seconds = 10;
  /// For giving up what devices do, once the run has failed; then the process ends.
  double abort_seconds = 10;
  Reporter* reporter = nullptr;  ///< hears why ranks of one host do not share memory
};

/// All ranks of a run. Every rank builds one at the same time; a world of one needs no store.
/// Starts threads: built after any fork. With peers, the process ignores SIGPIPE from then on,
/// unless it handles it.
class World final {
 public:
  /// Throws UserError when the store cannot be reached or its port is taken, when two processes
  /// were started as the same rank or with different world sizes; PeerFailure naming the ranks that
  /// did not start within the timeout.
  explicit World(const WorldOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// The group of all ranks, named "world".
  ProcessGroup group() const { return group_; }

  /// From now on, group() and the groups of split() take tensors of this CUDA device too, over
  /// NCCL. Every rank calls it once, before any split, after tensor::open_cuda; ranks of one host
  /// have different devices. A world of one has nothing to do. Throws UnsupportedError.
  void use_cuda_device(int device);

  /// This rank's group of a partition of the world. Every rank calls it with the same name (it is
  /// what errors call the group) and the same groups, which hold each rank once. Waits of the group
  /// end after `timeout_seconds`, or after the world's. Groups of the same ranks in the same order
  /// and of the same timeout are one, whatever they are called: their operations have one order.
  ProcessGroup split(const std::string& name, const std::vector<std::vector<int>>& groups,
                     std::optional<double> timeout_seconds = std::nullopt);

  /// How all ranks wait for each other's work on files. Made at the first call, with these options;
  /// every rank calls it.
  SlowWork& slow_work(const SlowWorkOptions& options = {});

  /// Leaves a failure's text for the peers, whose collectives then end with it. Called once, by a
  /// rank that is about to end. Never throws.
  void fail(const std::string& text) noexcept;

  /// Waits for all ranks at the end of a good run.
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;
  ProcessGroup group_;
  std::unique_ptr<SlowWork> slow_work_;
};

}  // namespace automodel::comm

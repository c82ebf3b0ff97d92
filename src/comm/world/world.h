#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/groups/process_group.h"
#include "comm/store/world_options.h"
#include "comm/watch/slow_work.h"
#include "comm/watch/traffic.h"

namespace automodel::comm {

/// Tells the ranks that wait for this one, or come within some seconds, why it does not come.
/// Waits for them at most so long where this rank serves the store.
void tell_failed_start(WorldOptions options, const std::string& text) noexcept;

/// All ranks of a run. Every rank constructs one at the same time; a world of one needs no store.
/// Starts threads, so construct it after any fork. With peers, the process then ignores SIGPIPE,
/// unless it handles it.
class World final {
 public:
  /// Throws UserError when the store cannot be reached or its port is taken, or when two processes
  /// were started as the same rank or with different world sizes; PeerFailure naming the ranks that
  /// did not start within the timeout.
  explicit World(const WorldOptions& options);
  ~World();

  /// Whether its ranks are on several hosts.
  bool spans_hosts() const;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// The group of all ranks, named "world".
  ProcessGroup group() const { return group_; }

  /// Makes group() and the groups of split() also take tensors on this CUDA device, over NCCL.
  /// Every rank calls it once, before any split and after tensor::open_cuda; ranks of one host must
  /// have different devices. Does nothing in a world of one. Throws UnsupportedError.
  void use_cuda_device(int device);

  /// This rank's group of a partition of the world. Every rank calls it with the same name (which
  /// errors use) and the same groups, which contain each rank once. Waits of the group end after
  /// `timeout_seconds`, by default the world's. Groups with the same ranks in the same order and
  /// the same timeout are one group under any name, so their operations have one order.
  ProcessGroup split(const std::string& name, const std::vector<std::vector<int>>& groups,
                     std::optional<double> timeout_seconds = std::nullopt);

  /// How all ranks wait for each other's work on files. The first call makes it, with these
  /// options; every rank calls it.
  SlowWork& slow_work(const SlowWorkOptions& options = {});

  /// How all ranks wait for each other's work beside training, each by a thread of its own:
  /// collectives and slow_work() may be under way meanwhile. The first call makes it; every rank
  /// calls it.
  SlowWork& background_work(SlowWorkOptions options = {});

  /// How long this rank has only waited for others in collectives and messages so far, the moving
  /// of bytes while it waits included. Of operations on a device it knows the host's part alone.
  double waited_seconds() const;

  /// What this rank has started in the groups of this world so far; nothing in a world of one.
  Traffic traffic() const;

  /// Leaves a failure's text for the peers, whose collectives then end with it. A rank that is
  /// about to end calls it, once. Never throws.
  void fail(const std::string& text) noexcept;

  /// Waits for all ranks at the end of a successful run.
  void close();

 private:
  struct State;
  std::unique_ptr<SlowWork> make_slow_work(const std::string& group,
                                           const SlowWorkOptions& options);

  std::shared_ptr<State> state_;
  ProcessGroup group_;
  std::unique_ptr<SlowWork> slow_work_;
  std::unique_ptr<SlowWork> background_work_;
};

}  // namespace automodel::comm

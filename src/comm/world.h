#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/process_group.h"

namespace automodel::comm {

/// How a rank finds the others.
struct WorldOptions {
  int rank = 0;
  int size = 1;
  std::string host = "127.0.0.1";  ///< where the store listens
  int port = 0;
  bool hosts_store = false;  ///< this rank serves the store (nobody else does)
  double timeout_seconds = 60;
};

/// The store of a world, served by this process: the local launcher has one, so that it outlives
/// every rank.
class StoreServer final {
 public:
  /// Serves on a listening socket's descriptor, which it owns from now on.
  StoreServer(int listening_fd, int port, int num_ranks);
  ~StoreServer();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// All ranks of a run. Every rank builds one at the same time; a world of one needs no store.
class World final {
 public:
  /// Throws UserError when the store cannot be reached ("rank 1: no answer from HOST:PORT ..."),
  /// or when its port is taken.
  explicit World(const WorldOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// The group of all ranks.
  ProcessGroup group() const { return group_; }

  /// Leaves a failure's text for the peers, who stop with it. Never throws.
  void fail(const std::string& text) noexcept;

  /// Waits for all ranks at the end of a good run.
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;
  ProcessGroup group_;
};

}  // namespace automodel::comm

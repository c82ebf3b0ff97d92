#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace automodel::comm {

/// About how many files a process has open which serves the store to so many ranks, and is one of
/// them: each has some six connections to the store (one for each thread that asks), and seven to
/// the other ranks of its groups. Student and teacher on ranks of their own have more.
constexpr int64_t files_of_store(int64_t num_ranks) {
  constexpr int64_t kOthers = 64, kOfRank = 13;
  return kOthers + kOfRank * num_ranks;
}

/// The store of a world: keys and values that all ranks share, for this object's lifetime. It
/// serves clients over TCP that prove that they know the run's secret (store_wire.h). From others
/// it reads only a greeting; it disconnects a client that sends anything else or has not proved
/// itself within some seconds, and the oldest such client when there are many.
class StoreServer final {
 public:
  /// Serves on a listening socket, whose descriptor it owns from now on. Starts a thread.
  StoreServer(int listening_fd, std::string secret);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace automodel::comm

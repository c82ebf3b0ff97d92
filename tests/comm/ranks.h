#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "comm/store/store_server.h"
#include "comm/world/world.h"
#include "core/clock.h"
#include "core/file.h"
#include "launcher/local_ranks.h"
#include "support/temporary_directory.h"

namespace automodel::comm {

/// What became of the ranks of a world, each a process of its own.
struct RanksResult {
  int status = 0;                   ///< the launcher's
  std::vector<std::string> errors;  ///< by process: what it threw, "" when it did not
  std::vector<std::string> kinds;   ///< "PeerFailure", "UserError", "other", ""
};

struct RanksOptions {
  double timeout_seconds = 20;
  double grace_seconds = 8;  ///< the launcher's
  std::string secret = "of the run";
  /// Changes how a process starts its world; `process` counts from 0.
  std::function<void(int process, WorldOptions&)> adjust = [](int, WorldOptions&) {};
};

/// What groups of one host talk over.
enum class Transport { kMemory, kLoopback };

inline RanksOptions over(Transport transport) {
  RanksOptions options;
  options.adjust = [transport](int, WorldOptions& world) {
    world.may_share_memory = transport == Transport::kMemory;
  };
  return options;
}

/// How many ranks, over what.
using RanksParam = std::tuple<int, Transport>;

inline std::string name_of(const testing::TestParamInfo<RanksParam>& info) {
  return cat(std::get<0>(info.param),
             std::get<1>(info.param) == Transport::kMemory ? "OverMemory" : "OverLoopback");
}

inline auto ranks_and_transports() {
  return testing::Combine(testing::Values(2, 4),
                          testing::Values(Transport::kMemory, Transport::kLoopback));
}

inline std::string kind_of(const std::exception& error) {
  if (dynamic_cast<const PeerFailure*>(&error) != nullptr) return "PeerFailure";
  return dynamic_cast<const UserError*>(&error) != nullptr ? "UserError" : "other";
}

/// Starts processes that build a world, call `body` and close it. A process that throws leaves its
/// text for the peers, as the recipes' ranks do.
inline RanksResult run_ranks(int num_ranks, const std::function<void(World&)>& body,
                             const RanksOptions& ranks = {}) {
  const test::TemporaryDirectory folder;
  launcher::LocalRun run;
  run.grace_seconds = ranks.grace_seconds;
  run.rank_main = [&](const launcher::LocalRank& place) -> launcher::RankOutcome {
    at::set_num_threads(1);
    WorldOptions options;
    options.rank = place.rank;
    options.size = place.num_ranks;
    options.port = place.port;
    options.timeout_seconds = ranks.timeout_seconds;
    options.secret = ranks.secret;
    ranks.adjust(place.rank, options);
    std::optional<World> world;
    try {
      world.emplace(options);
      body(*world);
      world->close();
      return 0;
    } catch (const std::exception& error) {
      if (world) world->fail(error.what());
      folder.write(cat(place.rank, ".kind"), kind_of(error));
      folder.write(cat(place.rank, ".text"), error.what());
      return {kind_of(error) == "PeerFailure" ? 4 : 1, error.what()};
    }
  };
  run.serve_store = [secret = ranks.secret](int fd, int, int) -> std::shared_ptr<void> {
    return std::make_shared<StoreServer>(fd, secret);
  };
  run.report = [](const launcher::RunFailure&) {};
  RanksResult result;
  result.status = launcher::run_local_ranks(num_ranks, run);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::string text = folder.file(cat(rank, ".text"));
    result.errors.push_back(path_exists(text) ? read_file(text) : "");
    const std::string kind = folder.file(cat(rank, ".kind"));
    result.kinds.push_back(path_exists(kind) ? read_file(kind) : "");
  }
  return result;
}

/// In a rank: ends it with `what` unless the condition holds.
inline void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// Every rank did what `body` expects.
inline void expect_ranks(int num_ranks, const std::function<void(World&)>& body,
                         const RanksOptions& ranks = {}) {
  const RanksResult result = run_ranks(num_ranks, body, ranks);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.errors, std::vector<std::string>(static_cast<size_t>(num_ranks)));
}

/// A TCP socket that listens on a free port of the loopback.
class TakenPort final {
 public:
  TakenPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(fd_, generic, size) != 0 || ::listen(fd_, 1) != 0 ||
        ::getsockname(fd_, generic, &size) != 0) {
      throw std::runtime_error("no port");
    }
    port_ = ntohs(address.sin_port);
  }
  ~TakenPort() { ::close(fd_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;

  int port() const { return port_; }

 private:
  int fd_ = -1;
  int port_ = 0;
};

/// A port that was free a moment ago.
inline int free_port() {
  return TakenPort().port();
}

/// Waits for a file that another rank writes.
inline void await_file(const std::string& path) {
  const double deadline = monotonic_seconds() + 20;
  while (!path_exists(path) && monotonic_seconds() < deadline) ::usleep(1000);
}

inline at::Tensor filled(int64_t size, double value) {
  return at::full({size}, value);
}

}  // namespace automodel::comm

#pragma once

#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl_rules.h"
#include "comm/ranks.h"
#include "comm/store/store_server.h"

namespace automodel::comm {

/// What a rank that is a thread shares with the others; null in ranks that are processes.
inline std::shared_ptr<NcclRules>& rules_of_thread() {
  thread_local std::shared_ptr<NcclRules> rules;
  return rules;
}

/// A group of the same ranks that keeps NCCL's rules. Every rank of `inner` calls it.
inline ProcessGroup ruled(const ProcessGroup& inner, int world_rank) {
  if (inner.size() == 1) return inner;
  std::vector<int> members;
  for (const std::string& text : inner.all_gather_text(cat(world_rank))) {
    members.push_back(static_cast<int>(parse_int(text).value()));
  }
  return {inner.name(),
          std::make_shared<RuledBackend>(rules_of_thread(), inner.name(), world_rank, members)};
}

/// As run_ranks, but the ranks are threads of one process, so that ruled() can be asked.
inline RanksResult run_rank_threads(int num_ranks, const std::function<void(World&)>& body,
                                    const RanksOptions& ranks = {}) {
  const test::TemporaryDirectory folder;
  launcher::LocalRun run;
  run.rank_main = [&](const launcher::LocalRank& process) -> launcher::RankOutcome {
    // c10d's recorder of collectives is one for the process: threads that are ranks would write to
    // it at once, without a lock.
    ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
    const auto rules = std::make_shared<NcclRules>(num_ranks);
    at::set_num_threads(1);  // the first call after a fork replaces a pool: not for two threads
    const auto be_rank = [&](int rank) {
      at::set_num_threads(1);
      rules_of_thread() = rules;
      WorldOptions options;
      options.rank = rank;
      options.size = num_ranks;
      options.port = process.port;
      options.timeout_seconds = ranks.timeout_seconds;
      options.secret = ranks.secret;
      ranks.adjust(rank, options);
      std::optional<World> world;
      std::string text;
      try {
        world.emplace(options);
        body(*world);
        rules->leave(rank);
        world->close();
      } catch (const std::exception& error) {
        text = error.what();
        rules->leave(rank);
        if (world) world->fail(text);
      }
      folder.write(cat(rank, ".text"), text);
    };
    std::vector<std::thread> threads;
    for (int rank = 0; rank < num_ranks; ++rank) threads.emplace_back(be_rank, rank);
    for (std::thread& thread : threads) thread.join();
    return 0;
  };
  run.serve_store = [&ranks](int fd, int, int) -> std::shared_ptr<void> {
    return std::make_shared<StoreServer>(fd, ranks.secret);
  };
  RanksResult result;
  result.status = launcher::run_local_ranks(1, run);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::string text = folder.file(cat(rank, ".text"));
    result.errors.push_back(path_exists(text) ? read_file(text) : "its process ended");
  }
  return result;
}

/// Every rank did what `body` expects.
inline void expect_rank_threads(int num_ranks, const std::function<void(World&)>& body) {
  const RanksResult result = run_rank_threads(num_ranks, body);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.errors, std::vector<std::string>(static_cast<size_t>(num_ranks)));
}

}  // namespace automodel::comm

#include <gmock/gmock.h>

#include <memory>

#include "comm/patience.h"
#include "comm/store/store_listener.h"
#include "comm/store/store_server.h"

namespace automodel::comm {
namespace {

using Texts = std::vector<std::string>;
using Groups = std::vector<std::vector<int>>;

void all_reduce(const ProcessGroup& group) {
  at::Tensor x = filled(4, 1);
  group.all_reduce(x, ReduceOp::kSum);
}

TEST(VanishedRankTest, IsNamedToEveryPeerLongBeforeTheTimeout) {
  const double begin = monotonic_seconds();
  const RanksResult result = run_ranks(
      3,
      [](World& world) {
        all_reduce(world.group());
        if (world.group().rank() == 2) ::raise(SIGKILL);
        all_reduce(world.group());
      },
      patient());
  EXPECT_EQ(result.status, 128 + SIGKILL);
  const std::string text =
      "rank 2 vanished during all_reduce of group world (its process has ended)";
  EXPECT_EQ(result.errors, (Texts{text, text, ""}));
  EXPECT_EQ(result.kinds, (Texts{"PeerFailure", "PeerFailure", ""}));
  EXPECT_LT(monotonic_seconds() - begin, kHangSeconds);
}

TEST(VanishedRankTest, IsNamedWhenItsPeerIsAloneInTheCollective) {
  const double begin = monotonic_seconds();
  const RanksResult result = run_ranks(
      3,
      [](World& world) {
        const ProcessGroup group = world.group();
        const Texts pids = group.all_gather_text(cat(static_cast<int64_t>(::getpid())));
        // Rank 0 kills rank 1, which waits for it in the collective.
        if (group.rank() == 0) ::kill(static_cast<pid_t>(parse_int(pids[1]).value()), SIGKILL);
        group.barrier();
      },
      patient());
  EXPECT_EQ(result.status, 128 + SIGKILL);
  // Ranks 0 and 2 have left the all_gather, or are about to.
  for (const size_t rank : {0U, 2U}) {
    EXPECT_THAT(result.errors[rank],
                testing::MatchesRegex("rank 1 vanished during (all_gather|barrier) of group world "
                                      ".its process has ended."));
  }
  EXPECT_LT(monotonic_seconds() - begin, kHangSeconds);
}

TEST(VanishedRankTest, IsNamedByItsGlobalRankAndTheGroup) {
  const RanksResult result = run_ranks(4, [](World& world) {
    const ProcessGroup tp = world.split("tp", Groups{{0, 1}, {2, 3}});
    all_reduce(tp);
    if (world.group().rank() == 3) ::raise(SIGKILL);
    all_reduce(tp);
    all_reduce(world.group());
  });
  EXPECT_EQ(result.status, 128 + SIGKILL);
  // The other pair is well until its next collective with everybody, and may tell first.
  for (const size_t rank : {0U, 1U, 2U}) {
    EXPECT_THAT(result.errors[rank],
                testing::MatchesRegex("rank 3 vanished during all_reduce of group (tp|world) "
                                      ".its process has ended."));
  }
}

TEST(VanishedRankTest, IsNamedWhenItServedTheStore) {
  const int port = free_port();
  RanksOptions options;
  options.adjust = [port](int process, WorldOptions& world) {
    world.port = port;
    world.hosts_store = process == 0;
    world.store_place = "rank 0";
  };
  const RanksResult result = run_ranks(
      3,
      [](World& world) {
        all_reduce(world.group());
        if (world.group().rank() == 0) ::raise(SIGKILL);
        all_reduce(world.group());
      },
      options);
  EXPECT_EQ(result.status, 128 + SIGKILL);
  const std::string text =
      "rank 0 vanished during all_reduce of group world (it served the run's store)";
  EXPECT_EQ(result.errors, (Texts{"", text, text}));
}

TEST(FailingRankTest, ItsTextReachesEveryPeer) {
  const RanksResult result = run_ranks(3, [](World& world) {
    all_reduce(world.group());
    if (world.group().rank() == 1) throw InputError("the disk is full");
    all_reduce(world.group());
  });
  EXPECT_EQ(result.errors, (Texts{"rank 1 failed: the disk is full", "the disk is full",
                                  "rank 1 failed: the disk is full"}));
  EXPECT_EQ(result.kinds, (Texts{"PeerFailure", "UserError", "PeerFailure"}));
}

TEST(FailingRankTest, ItsTextReachesPeersWhenItServesTheStore) {
  const int port = free_port();
  RanksOptions options;
  options.adjust = [port](int process, WorldOptions& world) {
    world.port = port;
    world.hosts_store = process == 0;
    world.store_place = "rank 0";
  };
  const RanksResult result = run_ranks(
      3,
      [](World& world) {
        all_reduce(world.group());
        if (world.group().rank() == 0) throw InputError("the disk is full");
        all_reduce(world.group());
      },
      options);
  const std::string text = "rank 0 failed: the disk is full";
  EXPECT_EQ(result.errors, (Texts{"the disk is full", text, text}));
}

/// A process with two worlds has the store open in the other one.
TEST(FailingRankTest, ItsTextReachesPeersWhenItsOtherWorldServesTheStore) {
  const int port = free_port();
  std::unique_ptr<StoreServer> server;
  RanksOptions options;
  options.adjust = [&](int process, WorldOptions& world) {
    world.port = port;
    world.store_place = "rank 0";
    if (process != 0) return;
    world.outstays_others = true;
    server =
        std::make_unique<StoreServer>(listen_for_store(world.host, port, true).fd, world.secret);
  };
  const RanksResult result = run_ranks(
      3,
      [&](World& world) {
        all_reduce(world.group());
        if (world.group().rank() != 0) all_reduce(world.group());
        world.fail("the disk is full");
        server.reset();
        throw InputError("the disk is full");
      },
      options);
  const std::string text = "rank 0 failed: the disk is full";
  EXPECT_EQ(result.errors, (Texts{"the disk is full", text, text}));
}

TEST(FailingRankTest, IsNamedByItsNumberInTheRunOfAWorldThatIsAPart) {
  RanksOptions options;
  options.adjust = [](int, WorldOptions& world) { world.first_rank = 4; };
  const RanksResult failed = run_ranks(
      2,
      [](World& world) {
        all_reduce(world.group());
        if (world.group().rank() == 1) throw InputError("the disk is full");
        all_reduce(world.group());
      },
      options);
  EXPECT_EQ(failed.errors, (Texts{"rank 5 failed: the disk is full", "the disk is full"}));
  const RanksResult vanished = run_ranks(
      2,
      [](World& world) {
        all_reduce(world.group());
        if (world.group().rank() == 1) ::raise(SIGKILL);
        all_reduce(world.group());
      },
      options);
  EXPECT_EQ(
      vanished.errors,
      (Texts{"rank 5 vanished during all_reduce of group world (its process has ended)", ""}));
}

TEST(FailingRankTest, ItsTextReachesPeersThatWaitForWhatTheyStarted) {
  const RanksResult result = run_ranks(3, [](World& world) {
    const ProcessGroup group = world.group();
    at::Tensor all = filled(12, 0), part = filled(4, 0);
    Work gathers = group.start_all_gather(all, filled(4, 1));
    if (group.rank() == 1) {
      gathers.wait();
      throw InputError("the disk is full");
    }
    Work reduces = group.start_reduce_scatter(part, filled(12, 1), ReduceOp::kSum);
    gathers.wait();
    reduces.wait();
  });
  EXPECT_EQ(result.errors, (Texts{"rank 1 failed: the disk is full", "the disk is full",
                                  "rank 1 failed: the disk is full"}));
}

TEST(FailingRankTest, TheFirstOfTwoFailuresIsEverybodys) {
  const RanksResult result = run_ranks(4, [](World& world) {
    all_reduce(world.group());
    if (world.group().rank() == 1) throw InputError("first");
    // Rank 2 fails because of rank 1, and says so once more.
    all_reduce(world.group());
  });
  for (const size_t rank : {0U, 2U, 3U}) EXPECT_EQ(result.errors[rank], "rank 1 failed: first");
}

TEST(LateRankTest, IsNamedWithWhatItDoesInstead) {
  const test::TemporaryDirectory folder;
  RanksOptions options;
  options.timeout_seconds = 1;
  const RanksResult result = run_ranks(
      2,
      [&](World& world) {
        all_reduce(world.group());
        if (world.group().rank() == 1) {
          await_file(folder.file("done"));
          ::_exit(0);
        }
        try {
          all_reduce(world.group());
        } catch (const PeerFailure&) {
          folder.write("done", "");
          throw;
        }
      },
      options);
  EXPECT_THAT(result.errors[0],
              testing::MatchesRegex("rank 1 did not come to all_reduce of group world within 1.0 s "
                                    ".it has been computing for [1-9].[0-9] s."));
}

TEST(LateRankTest, IsNamedWithTheGroupItIsIn) {
  RanksOptions options;
  options.adjust = [](int process, WorldOptions& world) {
    world.timeout_seconds = process == 0 ? 1 : 20;
  };
  const RanksResult result = run_ranks(
      2,
      [&](World& world) {
        const ProcessGroup other = world.split("other", Groups{{1, 0}});
        (world.group().rank() == 0 ? world.group() : other).barrier();
      },
      options);
  EXPECT_THAT(result.errors[0],
              testing::MatchesRegex("rank 1 did not come to barrier of group world within 1.0 s "
                                    ".it has been in barrier of group other for [1-9].[0-9] s."));
}

TEST(LateRankTest, IsNamedAfterTheGroupsOwnTimeout) {
  const test::TemporaryDirectory folder;
  const RanksResult result = run_ranks(2, [&](World& world) {
    const ProcessGroup quick = world.split("quick", Groups{{0, 1}}, 0.5);
    all_reduce(quick);
    if (world.group().rank() == 1) {
      await_file(folder.file("done"));
      ::_exit(0);
    }
    try {
      all_reduce(quick);
    } catch (const PeerFailure&) {
      folder.write("done", "");
      throw;
    }
  });
  EXPECT_THAT(result.errors[0],
              testing::MatchesRegex("rank 1 did not come to all_reduce of group quick within 0.5 s "
                                    ".it has been computing for [1-9].[0-9] s."));
}

TEST(LateRankTest, SeveralAreNamedEachWithItsPlace) {
  const test::TemporaryDirectory folder;
  RanksOptions options;
  options.adjust = [](int process, WorldOptions& world) {
    world.timeout_seconds = process < 2 ? 1 : 20;
  };
  const RanksResult result = run_ranks(
      4,
      [&](World& world) {
        const int rank = world.group().rank();
        const ProcessGroup pair = world.split("pair", Groups{{0, 1}, {2, 3}});
        if (rank == 2) pair.barrier();
        if (rank == 3) {
          await_file(folder.file("done"));
          ::_exit(0);
        }
        try {
          all_reduce(world.group());
        } catch (const PeerFailure&) {
          folder.write("done", "");
          throw;
        }
      },
      options);
  for (const size_t rank : {0U, 1U, 2U}) {
    EXPECT_THAT(
        result.errors[rank],
        testing::MatchesRegex("ranks 2, 3 did not come to all_reduce of group world within 1.0 s "
                              ".rank 2 has been in barrier of group pair for [1-9].[0-9] s; "
                              "rank 3 has been computing for [1-9].[0-9] s."));
  }
}

TEST(LateRankTest, AStartedOperationThatItDoesNotWaitForIsNotItsPlace) {
  const test::TemporaryDirectory folder;
  RanksOptions options;
  options.timeout_seconds = 1;
  const RanksResult result = run_ranks(
      2,
      [&](World& world) {
        const ProcessGroup pair = world.split("pair", Groups{{1, 0}});
        at::Tensor x = filled(4, 1);
        if (world.group().rank() == 1) {
          Work reduces = pair.start_all_reduce(x, ReduceOp::kSum);
          await_file(folder.file("done"));
          ::_exit(0);
        }
        try {
          all_reduce(world.group());
        } catch (const PeerFailure&) {
          folder.write("done", "");
          throw;
        }
      },
      options);
  EXPECT_THAT(result.errors[0],
              testing::MatchesRegex("rank 1 did not come to all_reduce of group world within 1.0 s "
                                    ".it has been computing for [1-9].[0-9] s."));
}

TEST(SilentRankTest, IsNamedAsVanished) {
  RanksOptions options = patient();
  options.timeout_seconds = 1;
  const RanksResult result = run_ranks(
      2,
      [](World& world) {
        all_reduce(world.group());
        if (world.group().rank() == 1) hang();
        all_reduce(world.group());
      },
      options);
  EXPECT_EQ(result.errors[0],
            "rank 1 vanished during all_reduce of group world (no sign of life for 2.0 s)");
}

/// The processes of a group's ranks.
std::vector<pid_t> processes_of(const ProcessGroup& group) {
  std::vector<pid_t> ranks;
  for (const std::string& pid : group.all_gather_text(cat(int64_t{::getpid()}))) {
    ranks.push_back(static_cast<pid_t>(parse_int(pid).value()));
  }
  return ranks;
}

/// As on a host that is suspended while two ranks look whether a third one is alive.
TEST(SilentRankTest, IsAloneNamedByRanksThatStoodStillToo) {
  RanksOptions options = patient();
  options.timeout_seconds = 2;
  const RanksResult result = run_ranks(
      3,
      [](World& world) {
        const ProcessGroup group = world.group();
        const std::vector<pid_t> ranks = processes_of(group);
        if (group.rank() == 2) hang();
        if (group.rank() == 0 && ::fork() == 0) {
          // Rank 0 looks from 2 to 4 seconds after it began to wait, and rank 1 not yet.
          ::usleep(1'600'000);
          ::kill(ranks[1], SIGSTOP);
          ::usleep(1'300'000);
          ::kill(ranks[0], SIGSTOP);
          ::usleep(2'500'000);
          ::kill(ranks[0], SIGCONT);
          ::usleep(100'000);
          ::kill(ranks[1], SIGCONT);
          ::_exit(0);
        }
        if (group.rank() == 1) ::usleep(1'000'000);
        all_reduce(group);
      },
      options);
  for (const size_t rank : {0U, 1U}) {
    EXPECT_EQ(result.errors[rank],
              "rank 2 vanished during all_reduce of group world (no sign of life for 2.0 s)");
  }
}

/// As on a host that is suspended for longer than a collective may take; rank 1 wakes last.
TEST(SuspendedRanksTest, GoOnWithWhatTheyWaitedFor) {
  RanksOptions options = patient();
  options.timeout_seconds = 4;
  const RanksResult result = run_ranks(
      2,
      [](World& world) {
        const ProcessGroup group = world.group();
        const std::vector<pid_t> ranks = processes_of(group);
        if (group.rank() == 0 && ::fork() == 0) {
          ::usleep(500'000);
          for (const pid_t rank : ranks) ::kill(rank, SIGSTOP);
          ::usleep(5'000'000);
          ::kill(ranks[0], SIGCONT);
          ::usleep(700'000);
          ::kill(ranks[1], SIGCONT);
          ::_exit(0);
        }
        if (group.rank() == 1) ::usleep(1'000'000);
        all_reduce(group);
      },
      options);
  for (const size_t rank : {0U, 1U}) EXPECT_EQ(result.errors[rank], "");
}

TEST(SilentRankTest, IsNamedToPeersThatWaitForWhatTheyStarted) {
  RanksOptions options = patient();
  options.timeout_seconds = 1;
  const RanksResult result = run_ranks(
      3,
      [](World& world) {
        const ProcessGroup group = world.group();
        at::Tensor x = at::ones({4 << 20});
        Work first = group.start_all_reduce(x, ReduceOp::kSum);
        if (group.rank() == 2) hang();
        first.wait();
        all_reduce(group);
      },
      options);
  for (const size_t rank : {0U, 1U}) {
    EXPECT_THAT(result.errors[rank],
                testing::MatchesRegex("rank 2 vanished during all_reduce of group world "
                                      ".no sign of life for 2.0 s."));
  }
}

TEST(SilentRankTest, IsNamedToPeersOfThoseThatWaitForIt) {
  RanksOptions options = patient();
  options.timeout_seconds = 1;
  const RanksResult result = run_ranks(
      3,
      [](World& world) {
        const ProcessGroup low = world.split("low", {{0, 1}, {2}});
        const ProcessGroup high = world.split("high", {{1, 2}, {0}});
        const int rank = world.group().rank();
        all_reduce(world.group());
        if (rank == 2) hang();
        // Rank 0 has waited for rank 1 for longer than rank 1 for rank 2.
        if (rank == 1) ::usleep(700'000);
        if (rank == 1) all_reduce(high);
        all_reduce(low);
      },
      options);
  for (const size_t rank : {0U, 1U}) {
    EXPECT_EQ(result.errors[rank],
              "rank 2 vanished during all_reduce of group high (no sign of life for 2.0 s)");
  }
}

}  // namespace
}  // namespace automodel::comm

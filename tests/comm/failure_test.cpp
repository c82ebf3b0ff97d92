#include <gmock/gmock.h>

#include "comm/ranks.h"

namespace automodel::comm {
namespace {

using Texts = std::vector<std::string>;
using Groups = std::vector<std::vector<int>>;

void all_reduce(const ProcessGroup& group) {
  at::Tensor x = filled(4, 1);
  group.all_reduce(x, ReduceOp::kSum);
}

TEST(VanishedRankTest, IsNamedToEveryPeerWithinSeconds) {
  const double begin = monotonic_seconds();
  const RanksResult result = run_ranks(3, [](World& world) {
    all_reduce(world.group());
    if (world.group().rank() == 2) ::raise(SIGKILL);
    all_reduce(world.group());
  });
  EXPECT_EQ(result.status, 128 + SIGKILL);
  const std::string text =
      "rank 2 vanished during all_reduce of group world (its process has ended)";
  EXPECT_EQ(result.errors, (Texts{text, text, ""}));
  EXPECT_EQ(result.kinds, (Texts{"PeerFailure", "PeerFailure", ""}));
  EXPECT_LT(monotonic_seconds() - begin, 5.0);
}

TEST(VanishedRankTest, IsNamedWhenItsPeerIsAloneInTheCollective) {
  const double begin = monotonic_seconds();
  const RanksResult result = run_ranks(3, [](World& world) {
    const ProcessGroup group = world.group();
    const Texts pids = group.all_gather_text(cat(static_cast<int64_t>(::getpid())));
    // Rank 0 kills rank 1, which waits for it in the collective.
    if (group.rank() == 0) ::kill(static_cast<pid_t>(parse_int(pids[1]).value()), SIGKILL);
    group.barrier();
  });
  EXPECT_EQ(result.status, 128 + SIGKILL);
  // Ranks 0 and 2 have left the all_gather, or are about to.
  for (const size_t rank : {0U, 2U}) {
    EXPECT_THAT(result.errors[rank],
                testing::MatchesRegex("rank 1 vanished during (all_gather|barrier) of group world "
                                      ".its process has ended."));
  }
  EXPECT_LT(monotonic_seconds() - begin, 5.0);
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
  EXPECT_EQ(result.errors[0],
            "rank 1 did not come to all_reduce of group world within 1.0 s (it lives but is in no "
            "collective)");
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
  EXPECT_EQ(result.errors[0],
            "rank 1 did not come to barrier of group world within 1.0 s (it is in barrier of group "
            "other)");
}

TEST(SilentRankTest, IsNamedAsVanished) {
  RanksOptions options;
  options.timeout_seconds = 1;
  options.grace_seconds = 0.5;
  const RanksResult result = run_ranks(
      2,
      [](World& world) {
        all_reduce(world.group());
        if (world.group().rank() == 1) ::raise(SIGSTOP);
        all_reduce(world.group());
      },
      options);
  EXPECT_EQ(result.errors[0],
            "rank 1 vanished during all_reduce of group world (no sign of life for 2.0 s)");
}

}  // namespace
}  // namespace automodel::comm

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "comm/ranks.h"

namespace automodel::comm {
namespace {

using Texts = std::vector<std::string>;

void nothing(World&) {}

/// Long enough for ranks to start in on a busy machine; errors name it.
constexpr double kStartSeconds = 3;

/// Process 0 serves the store at `port`, as rank 0 does where nobody launched it here.
RanksOptions served_by_rank_0(int port) {
  RanksOptions options;
  options.timeout_seconds = kStartSeconds;
  options.adjust = [port](int process, WorldOptions& world) {
    world.port = port;
    world.hosts_store = process == 0;
    world.store_place = "rank 0";
  };
  return options;
}

TEST(StartTest, RankZeroCanServeTheStore) {
  RanksOptions options = served_by_rank_0(free_port());
  options.timeout_seconds = 20;
  const RanksResult result = run_ranks(
      3, [](World& world) { expect(world.group().agree_max(world.group().rank()) == 2, "max"); },
      options);
  EXPECT_EQ(result.errors, Texts(3));
}

TEST(StartTest, RunIdsKeepAttemptsOnOneStoreApart) {
  RanksOptions options;
  int port = 0;
  options.adjust = [&port](int, WorldOptions& world) {
    world.run_id = "job.0";
    port = world.port;
  };
  const RanksResult result = run_ranks(
      2,
      [&port](World& first) {
        WorldOptions again;
        again.rank = first.group().rank();
        again.size = 2;
        again.port = port;
        again.run_id = "job.1";
        again.secret = RanksOptions().secret;
        World second(again);
        expect(second.group().agree_max(again.rank) == 1, "max");
        second.close();
      },
      options);
  EXPECT_EQ(result.errors, Texts(2));
}

TEST(StartTest, TwoProcessesAsOneRankAreNamed) {
  RanksOptions options;
  options.timeout_seconds = kStartSeconds;
  options.adjust = [](int process, WorldOptions& world) {
    world.rank = process == 0 ? 0 : 1;
    world.size = 3;
  };
  const RanksResult result = run_ranks(3, nothing, options);
  const std::string twice = "two processes were started as rank 1";
  EXPECT_THAT(result.errors, testing::Contains(twice).Times(1));
  EXPECT_THAT(result.errors, testing::Contains("rank 2 did not start within 3.0 s").Times(2));
}

/// A rank that is started again while the others take it for running may be started once more.
TEST(StartTest, ARankThatIsThereAlreadyIsNoMistake) {
  const test::TemporaryDirectory folder;
  const std::string met = folder.file("met");
  RanksOptions options;
  options.timeout_seconds = kStartSeconds;
  options.adjust = [&](int process, WorldOptions& world) {
    world.rank = process == 0 ? 0 : 1;
    world.size = 2;
    while (process == 2 && !path_exists(met)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  const auto stay = [&](World& world) {
    folder.write("met", "");
    std::this_thread::sleep_for(std::chrono::seconds(2));
    world.close();
  };
  const RanksResult result = run_ranks(3, stay, options);
  EXPECT_THAT(result.errors[2], testing::HasSubstr("rank 1 is there already"));
  EXPECT_EQ(result.kinds[2], "PeerFailure");
}

TEST(StartTest, DifferentWorldSizesAreNamed) {
  RanksOptions options;
  options.adjust = [](int process, WorldOptions& world) { world.size = process == 0 ? 2 : 3; };
  const RanksResult result = run_ranks(2, nothing, options);
  EXPECT_EQ(result.errors, (Texts{"rank 1 was started as one of 3 ranks, rank 0 as one of 2",
                                  "rank 0 was started as one of 2 ranks, rank 1 as one of 3"}));
  EXPECT_EQ(result.kinds, (Texts{"UserError", "UserError"}));
}

TEST(StartTest, DifferentWorldSizesAreNamedWhenRankZeroServesTheStore) {
  RanksOptions options = served_by_rank_0(free_port());
  options.timeout_seconds = 5;
  options.adjust = [serve = options.adjust](int process, WorldOptions& world) {
    serve(process, world);
    world.size = process == 0 ? 2 : 3;
  };
  const RanksResult result = run_ranks(2, nothing, options);
  EXPECT_EQ(result.errors, (Texts{"rank 1 was started as one of 3 ranks, rank 0 as one of 2",
                                  "rank 0 was started as one of 2 ranks, rank 1 as one of 3"}));
}

TEST(StartTest, ARankThatFailedBeforeItCameSaysWhy) {
  RanksOptions options;
  options.adjust = [](int process, WorldOptions& world) {
    if (process != 1) return;
    tell_failed_start(world, "a key is unknown");
    world.size = 1;  // and it ends
  };
  const RanksResult result = run_ranks(2, nothing, options);
  EXPECT_EQ(result.errors, (Texts{"rank 1 failed: a key is unknown", ""}));
  EXPECT_EQ(result.kinds, (Texts{"PeerFailure", ""}));
}

TEST(StartTest, RankZeroSaysWhyItDoesNotServeTheStore) {
  RanksOptions options = served_by_rank_0(free_port());
  options.adjust = [serve = options.adjust](int process, WorldOptions& world) {
    serve(process, world);
    if (process != 0) return;
    tell_failed_start(world, "a key is unknown");
    world.size = 1;  // and it ends
  };
  const RanksResult result = run_ranks(2, nothing, options);
  EXPECT_EQ(result.errors, (Texts{"", "rank 0 failed: a key is unknown"}));
}

TEST(StartTest, RanksThatNeverStartAreNamed) {
  RanksOptions options;
  options.timeout_seconds = kStartSeconds;
  options.adjust = [](int, WorldOptions& world) { world.size = 4; };
  const RanksResult result = run_ranks(2, nothing, options);
  EXPECT_EQ(result.errors, Texts(2, "ranks 2, 3 did not start within 3.0 s"));
  EXPECT_EQ(result.kinds, Texts(2, "PeerFailure"));
}

TEST(StartTest, ARankThatNeverStartsIsNamedWhenRankZeroServesTheStore) {
  RanksOptions options = served_by_rank_0(free_port());
  options.adjust = [serve = options.adjust](int process, WorldOptions& world) {
    serve(process, world);
    world.size = 3;
  };
  const RanksResult result = run_ranks(2, nothing, options);
  EXPECT_EQ(result.errors, Texts(2, "rank 2 did not start within 3.0 s"));
}

TEST(StartTest, ATakenPortSaysSo) {
  const TakenPort taken;
  RanksOptions options = served_by_rank_0(taken.port());
  options.adjust = [serve = options.adjust](int process, WorldOptions& world) {
    serve(process, world);
    world.size = 2;
  };
  const RanksResult result = run_ranks(1, nothing, options);
  EXPECT_EQ(result.errors, Texts{cat("port ", taken.port(),
                                     " is taken by another process of this host; set MASTER_PORT "
                                     "to a free one")});
  EXPECT_EQ(result.kinds, Texts{"UserError"});
}

TEST(StartTest, NoAnswerFromTheStoreSaysWhere) {
  const int port = free_port();
  RanksOptions options = served_by_rank_0(port);
  options.adjust = [port](int, WorldOptions& world) {
    world.port = port;
    world.rank = 1;
    world.size = 2;
  };
  const RanksResult result = run_ranks(1, nothing, options);
  EXPECT_THAT(result.errors[0],
              testing::StartsWith(
                  cat("no answer from the run's store at 127.0.0.1:", port, " within 3.0 s: ")));
  EXPECT_EQ(result.errors[0].find('\n'), std::string::npos);
}

}  // namespace
}  // namespace automodel::comm

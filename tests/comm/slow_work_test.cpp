#include <gmock/gmock.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "comm/patience.h"
#include "comm/store/store_client.h"
#include "comm/store/store_listener.h"
#include "comm/store/store_server.h"

namespace automodel::comm {
namespace {

using Texts = std::vector<std::string>;
using testing::HasSubstr;

/// Work that takes longer than any timeout, and moves bytes meanwhile.
void work_slowly(SlowWork& slow, double seconds) {
  const double end = monotonic_seconds() + seconds;
  while (monotonic_seconds() < end) {
    slow.progress() += 1000;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

RanksOptions with_timeout(double seconds) {
  RanksOptions options;
  options.timeout_seconds = seconds;
  return options;
}

TEST(SlowWorkTest, AWorldOfOneJustWorks) {
  SlowWork slow;
  int calls = 0;
  slow.run("saving", [&] { ++calls; });
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(slow.has_met());
  EXPECT_THROW(slow.run("saving", [] { throw InputError("no"); }), InputError);
}

TEST(SlowWorkTest, PeersWaitLongerThanATimeout) {
  expect_ranks(
      3,
      [](World& world) {
        SlowWork& slow = world.slow_work({.stall_seconds = 2});
        for (int slowest = 0; slowest < 3; ++slowest) {
          const double begin = monotonic_seconds();
          slow.run("saving", [&] {
            if (world.group().rank() == slowest) work_slowly(slow, 3.5);
          });
          expect(monotonic_seconds() - begin > 3.4, "somebody did not wait");
          expect(slow.has_met(), "not met");
          world.group().barrier();
        }
      },
      with_timeout(2));
}

TEST(SlowWorkTest, AFailureIsTheSameForAllOnceNobodyIsAtWork) {
  const RanksResult result = run_ranks(
      3,
      [](World& world) {
        SlowWork& slow = world.slow_work();
        const int rank = world.group().rank();
        bool is_through = false;
        try {
          slow.run("saving", [&] {
            if (rank == 1) throw InputError("the disk is full");
            if (rank == 2) work_slowly(slow, 3);
            is_through = true;
          });
          expect(false, "the work of rank 1 counts as done");
        } catch (const std::exception&) {
          expect(slow.has_met(), "somebody may still be at work");
          expect(is_through == (rank != 1), "the work was cut off");
          throw;
        }
      },
      with_timeout(2));
  EXPECT_THAT(result.errors[1], testing::Eq("the disk is full"));
  for (const size_t rank : {0U, 2U}) {
    EXPECT_THAT(result.errors[rank], HasSubstr("rank 1 failed: the disk is full"));
    EXPECT_EQ(result.kinds[rank], "PeerFailure");
  }
}

TEST(SlowWorkTest, AFailureIsNamedByItsNumberInTheRunOfAWorldThatIsAPart) {
  RanksOptions options = with_timeout(2);
  options.adjust = [](int, WorldOptions& world) { world.first_rank = 4; };
  const RanksResult result = run_ranks(
      2,
      [](World& world) {
        world.slow_work().run("saving", [&] {
          if (world.group().rank() == 1) throw InputError("the disk is full");
        });
      },
      options);
  EXPECT_EQ(result.errors, (Texts{"rank 5 failed: the disk is full", "the disk is full"}));
}

/// Who serves the store ends while another rank is still at work, which comes to know it when it
/// tells that it is done.
TEST(SlowWorkTest, AStoreThatIsGoneWhenTheWorkIsDoneIsExplained) {
  RanksOptions options = patient();
  const int port = free_port();
  std::unique_ptr<StoreServer> server;  // in the process of rank 0
  options.adjust = [&](int process, WorldOptions& world) {
    world.port = port;
    world.store_place = "rank 0";
    if (process != 0) return;
    server =
        std::make_unique<StoreServer>(listen_for_store(world.host, port, true).fd, world.secret);
  };
  const RanksResult result = run_ranks(
      2,
      [](World& world) {
        SlowWork& slow = world.slow_work();
        world.group().barrier();  // both have their connections
        slow.run("saving", [&] {
          if (world.group().rank() == 0) ::raise(SIGKILL);
          work_slowly(slow, 1);
        });
      },
      options);
  EXPECT_THAT(result.errors[1], HasSubstr("vanished during saving of group world"));
  EXPECT_EQ(result.kinds[1], "PeerFailure");
}

TEST(SlowWorkTest, TheStoreDoesNotGrowWithEveryMeeting) {
  RanksOptions options = with_timeout(20);
  int port = 0;  // in each rank's process
  options.adjust = [&](int, WorldOptions& world) { port = world.port; };
  expect_ranks(
      3,
      [&](World& world) {
        SlowWork& slow = world.slow_work();
        StoreClient store({"127.0.0.1", port, options.secret, 20});
        const auto num_keys_after = [&](int num_meetings) {
          for (int i = 0; i < num_meetings; ++i) slow.run("saving", [] {});
          world.group().barrier();
          const int64_t num_keys = store.getNumKeys();
          world.group().barrier();
          return num_keys;
        };
        const int64_t before = num_keys_after(2), after = num_keys_after(20);
        expect(after <= before, cat(before, " keys, then ", after));
      },
      options);
}

TEST(SlowWorkTest, ARankThatEndsIsNamedInTime) {
  const double begin = monotonic_seconds();
  const RanksResult result = run_ranks(
      3,
      [](World& world) {
        SlowWork& slow = world.slow_work();
        slow.run("saving", [&] {
          if (world.group().rank() == 2) ::raise(SIGKILL);
        });
      },
      patient());
  EXPECT_LT(monotonic_seconds() - begin, kHangSeconds);
  const std::string text = "rank 2 vanished during saving of group world (its process has ended)";
  EXPECT_EQ(result.errors, (Texts{text, text, ""}));
}

TEST(SlowWorkTest, ARankThatStandsStillIsGivenUp) {
  const test::TemporaryDirectory folder;
  const RanksResult result = run_ranks(
      2,
      [&](World& world) {
        SlowWork& slow = world.slow_work({.stall_seconds = 1.5});
        try {
          slow.run("exporting", [&] {
            if (world.group().rank() == 1) await_file(folder.file("told"));
          });
        } catch (const PeerFailure&) {
          folder.write("told", "");
          throw;
        }
      },
      patient());
  EXPECT_THAT(result.errors[0],
              testing::MatchesRegex("rank 1 has made no progress in exporting for [0-9.]+ s"));
  EXPECT_EQ(result.kinds[0], "PeerFailure");
}

class Lines final : public Reporter {
 public:
  void info(std::string_view text) override {
    const std::lock_guard lock(mutex_);
    all_ += cat(text, "\n");
  }
  void warning(std::string_view) override {}
  void error(std::string_view) override {}
  std::string all() {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  std::mutex mutex_;
  std::string all_;
};

TEST(SlowWorkTest, LongWorkIsToldWithItsProgress) {
  Lines lines;  // a copy of it in each process
  expect_ranks(2, [&](World& world) {
    SlowWork& slow = world.slow_work({.report_seconds = 0.5, .reporter = &lines});
    slow.run("saving x", [&] {
      if (world.group().rank() == 1) work_slowly(slow, 2.5);
    });
    if (world.group().rank() == 0) {
      expect(lines.all().find("saving x for ") != std::string::npos, "no line: " + lines.all());
      expect(lines.all().find(" on rank 1") != std::string::npos, "no bytes: " + lines.all());
    } else {
      expect(lines.all().empty(), "told twice: " + lines.all());
    }
    slow.run("nothing", [] {});
    world.group().barrier();
  });
}

TEST(SlowWorkTest, AWorldOfOneTellsOfLongWorkToo) {
  Lines lines;
  SlowWork slow({.report_seconds = 0.2, .reporter = &lines});
  slow.run("loading the weights", [&] { work_slowly(slow, 0.7); });
  EXPECT_THAT(lines.all(),
              testing::ContainsRegex(
                  "loading the weights for [0-9.]+ s: [0-9.]+ [KM]iB, [0-9.]+ [KM]?i?B/s"));
}

}  // namespace
}  // namespace automodel::comm

#include "launcher/local_ranks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/text.h"
#include "support/temporary_directory.h"

namespace automodel::launcher {
namespace {

int run(int num_ranks, std::function<int(const LocalRank&)> rank_main) {
  LocalRun local;
  local.rank_main = std::move(rank_main);
  local.serve_store = [](int fd, int, int) -> std::shared_ptr<void> {
    ::close(fd);
    return nullptr;
  };
  return run_local_ranks(num_ranks, local);
}

TEST(LocalRanksTest, EveryRankRunsOnce) {
  const test::TemporaryDirectory folder;
  EXPECT_EQ(run(3,
                [&](const LocalRank& place) {
                  write_file_atomic(folder.file(cat(place.rank)), cat(place.num_ranks));
                  return place.num_threads >= 1 && place.port > 0 ? 0 : 9;
                }),
            0);
  EXPECT_EQ(list_directory(folder.path()), (std::vector<std::string>{"0", "1", "2"}));
}

TEST(LocalRanksTest, TheFirstFailureIsTheRunsStatusAndTheOthersEnd) {
  const double begin = monotonic_seconds();
  EXPECT_EQ(run(3,
                [](const LocalRank& place) {
                  if (place.rank == 1) return 3;
                  ::pause();  // a rank that hears nothing of it
                  return 0;
                }),
            3);
  EXPECT_LT(monotonic_seconds() - begin, 7.0);
}

TEST(LocalRanksTest, AKilledRankGivesItsSignal) {
  EXPECT_EQ(run(2,
                [](const LocalRank& place) {
                  if (place.rank == 1) ::raise(SIGKILL);
                  return 0;
                }),
            128 + SIGKILL);
}

TEST(LocalRanksTest, PreemptionIsNoFailure) {
  EXPECT_EQ(run(2, [](const LocalRank&) { return 75; }), 75);
}

TEST(LocalRanksTest, NoRankOutlivesAKilledLauncher) {
  const test::TemporaryDirectory folder;
  const std::string pid_file = folder.file("pid");
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    run(1, [&](const LocalRank&) {
      write_file_atomic(pid_file, cat(static_cast<int64_t>(::getpid())));
      while (true) ::pause();
      return 0;
    });
    ::_exit(0);
  }
  const double deadline = monotonic_seconds() + 10;
  while (!path_exists(pid_file) && monotonic_seconds() < deadline) ::usleep(1000);
  const auto rank = static_cast<pid_t>(*parse_int(read_file(pid_file)));
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  while (::kill(rank, 0) == 0 && monotonic_seconds() < deadline) ::usleep(1000);
  EXPECT_NE(::kill(rank, 0), 0);
}

}  // namespace
}  // namespace automodel::launcher

#include "launcher/local_ranks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "support/temporary_directory.h"

namespace automodel::launcher {
namespace {

/// What the launcher returned and said.
struct Launch {
  int status = 0;
  std::vector<std::string> reports;
  int failed_rank = -1;
};

Launch launch(int num_ranks, std::function<RankOutcome(const LocalRank&)> rank_main) {
  Launch result;
  LocalRun local;
  local.rank_main = std::move(rank_main);
  local.serve_store = [](int fd, int, int) -> std::shared_ptr<void> {
    ::close(fd);
    return nullptr;
  };
  local.report = [&](const RunFailure& failure) {
    result.reports.push_back(failure.text);
    result.failed_rank = failure.rank;
  };
  local.grace_seconds = 0.6;
  result.status = run_local_ranks(num_ranks, local);
  return result;
}

int run(int num_ranks, std::function<RankOutcome(const LocalRank&)> rank_main) {
  return launch(num_ranks, std::move(rank_main)).status;
}

/// The text that a process wrote into a file, once it is there.
std::string await_file(const std::string& path) {
  const double deadline = monotonic_seconds() + 120;  // a hang
  while (!path_exists(path) && monotonic_seconds() < deadline) ::usleep(1000);
  return read_file(path);
}

/// Waits until a process has ended and somebody has waited for it.
void await_end(pid_t pid) {
  const double deadline = monotonic_seconds() + 120;  // a hang
  while (::kill(pid, 0) == 0 && monotonic_seconds() < deadline) ::usleep(1000);
}

void write_pid(const std::string& path) {
  write_file_atomic(path, cat(static_cast<int64_t>(::getpid())));
}

pid_t await_pid(const std::string& path) {
  return static_cast<pid_t>(parse_int(await_file(path)).value());
}

constexpr int kRankFailed = 4;  // ExitCode::kRankFailed
using Texts = std::vector<std::string>;

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
  EXPECT_EQ(run(3,
                [](const LocalRank& place) {
                  if (place.rank == 1) return 3;
                  while (true)
                    ::pause();  // a rank that hears nothing of it, and never ends by itself
                  return 0;
                }),
            3);
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
  const pid_t rank = await_pid(pid_file);
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  await_end(rank);
  EXPECT_NE(::kill(rank, 0), 0);
}

TEST(LocalRanksReportTest, AFailuresTextIsSaidOnceWithItsRank) {
  const Launch result = launch(3, [](const LocalRank& place) {
    if (place.rank == 1) return RankOutcome(3, "no file x.json");
    return RankOutcome(kRankFailed, "rank 1 failed: no file x.json");
  });
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.reports, Texts{"rank 1: no file x.json"});
  EXPECT_EQ(result.failed_rank, 1);
}

TEST(LocalRanksReportTest, WhatARankThrowsIsItsFailure) {
  const test::TemporaryDirectory folder;
  const Launch result = launch(2, [&](const LocalRank& place) -> RankOutcome {
    if (place.rank == 1) throw InputError("cannot write the log");
    return RankOutcome(kRankFailed, "rank 1 failed: cannot write the log");
  });
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.reports, Texts{"rank 1: cannot write the log"});
}

TEST(LocalRanksReportTest, AnEchoThatEndsFirstGivesWayToTheCause) {
  const test::TemporaryDirectory folder;
  const Launch result = launch(2, [&](const LocalRank& place) {
    if (place.rank == 0) {
      write_pid(folder.file("pid"));
      return RankOutcome(kRankFailed, "rank 1 failed: late");
    }
    await_end(await_pid(folder.file("pid")));
    return RankOutcome(3, "late");
  });
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.reports, Texts{"rank 1: late"});
}

TEST(LocalRanksReportTest, OfTwoCausesTheFirstIsSaid) {
  const test::TemporaryDirectory folder;
  const Launch result = launch(2, [&](const LocalRank& place) {
    if (place.rank == 1) {
      write_pid(folder.file("pid"));
      return RankOutcome(5, "first");
    }
    await_end(await_pid(folder.file("pid")));
    return RankOutcome(3, "second");
  });
  EXPECT_EQ(result.status, 5);
  EXPECT_EQ(result.reports, Texts{"rank 1: first"});
}

TEST(LocalRanksReportTest, OnlyEchoesAreSaidOnceAtTheEnd) {
  const Launch result =
      launch(1, [](const LocalRank&) { return RankOutcome(kRankFailed, "barrier timed out"); });
  EXPECT_EQ(result.status, kRankFailed);
  EXPECT_EQ(result.reports, Texts{"rank 0: barrier timed out"});
}

TEST(LocalRanksReportTest, ARankThatSaidItItselfIsNotReported) {
  const Launch result = launch(2, [](const LocalRank& place) { return place.rank == 0 ? 2 : 0; });
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.reports, Texts{});
}

TEST(LocalRanksReportTest, AKilledRankIsNamedWithItsProcess) {
  const test::TemporaryDirectory folder;
  const Launch result = launch(2, [&](const LocalRank& place) {
    if (place.rank == 1) {
      write_pid(folder.file("pid"));
      ::raise(SIGKILL);
    }
    return RankOutcome(kRankFailed, "rank 1 vanished");
  });
  EXPECT_EQ(result.status, 128 + SIGKILL);
  EXPECT_EQ(result.reports, Texts{cat("rank 1 (pid ", read_file(folder.file("pid")),
                                      ") was killed by signal 9 (Killed)")});
  EXPECT_EQ(result.failed_rank, 1);
}

TEST(LocalRanksReportTest, TextsAreCutWhereAPipeEnds) {
  const Launch result =
      launch(1, [](const LocalRank&) { return RankOutcome(3, std::string(200000, 'x')); });
  ASSERT_EQ(result.reports.size(), 1U);
  EXPECT_EQ(result.reports[0], cat("rank 0: ", std::string(60000, 'x')));
}

TEST(LocalRanksReportTest, WhatTheLauncherStoppedIsNoCause) {
  const Launch result = launch(2, [](const LocalRank& place) {
    if (place.rank == 0) return RankOutcome(kRankFailed, "rank 1 did not come");
    ::pause();  // stopped after half the grace time
    return RankOutcome(0);
  });
  EXPECT_EQ(result.status, kRankFailed);
  EXPECT_EQ(result.reports, Texts{"rank 0: rank 1 did not come"});
}

/// Kills a process whose parent is stopped, and waits until it has ended.
void kill_unwaited(pid_t pid) {
  ::kill(pid, SIGKILL);
  const double deadline = monotonic_seconds() + 120;  // a hang
  const std::string path = cat("/proc/", static_cast<int64_t>(pid), "/stat");
  while (read_file(path).find(") Z ") == std::string::npos && monotonic_seconds() < deadline)
    ::usleep(1000);
}

/// A launcher that stood still beyond the grace time asks the ranks before it kills them, and takes
/// none of them for the cause.
TEST(LocalRanksReportTest, ALauncherThatWasStoppedStillAsksRanksFirst) {
  const test::TemporaryDirectory folder;
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::_exit(run(2, [&](const LocalRank& place) {
      if (place.rank == 1) {
        ::signal(SIGTERM, [](int) { ::_exit(0); });
        write_pid(folder.file("pid1"));
        while (true) ::pause();
      }
      await_file(folder.file("pid1"));
      write_pid(folder.file("pid0"));
      return RankOutcome(kRankFailed, "rank 1 did not come");
    }));
  }
  await_end(await_pid(folder.file("pid0")));  // the launcher has seen it
  ::kill(launcher, SIGSTOP);
  ::usleep(900000);  // the grace time is 0.6 seconds
  ::kill(launcher, SIGCONT);
  int status = 0;
  ::waitpid(launcher, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), kRankFailed);
}

/// What a launcher of two ranks that wait for ever says after signals to it: its status, and its
/// text. `ranks_are_gone`: both are killed before it sees the signals.
std::pair<int, std::string> after_signals(const std::vector<int>& signals,
                                          bool ranks_are_gone = false) {
  const test::TemporaryDirectory folder;
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    const Launch result = launch(2, [&](const LocalRank& place) {
      write_pid(folder.file(cat("pid", place.rank)));
      while (true) ::pause();
      return RankOutcome(0);
    });
    write_file_atomic(folder.file("said"), join(result.reports, "|"));
    ::_exit(result.status);
  }
  const pid_t first = await_pid(folder.file("pid0"));
  const pid_t second = await_pid(folder.file("pid1"));
  ::kill(launcher, SIGSTOP);  // all are there when it looks
  ::waitpid(launcher, nullptr, WUNTRACED);
  if (ranks_are_gone) {
    kill_unwaited(first);
    kill_unwaited(second);
  }
  for (const int signal : signals) ::kill(launcher, signal);
  ::kill(launcher, SIGCONT);
  int status = 0;
  ::waitpid(launcher, &status, 0);
  return {WEXITSTATUS(status), read_file(folder.file("said"))};
}

TEST(LocalRanksSignalTest, ASignalIsPassedOnAndNamed) {
  EXPECT_EQ(after_signals({SIGTERM}),
            (std::pair<int, std::string>(128 + SIGTERM, "stopped by signal 15 (Terminated)")));
}

/// Which of them ends a rank is not known.
TEST(LocalRanksSignalTest, ARankIsNotBlamedForAnyOfTheSignalsThatWerePassedOn) {
  const auto [status, text] = after_signals({SIGTERM, SIGINT});
  EXPECT_GT(status, 128);
  EXPECT_TRUE(text.starts_with("stopped by signal ")) << text;
}

TEST(LocalRanksSignalTest, SignalsThatComeWhenTheRanksHaveEndedLeaveTheLauncherItsWord) {
  const auto [status, text] = after_signals({SIGTERM, SIGINT}, true);
  EXPECT_EQ(status, 128 + SIGKILL);
  EXPECT_NE(text.find("was killed by signal 9"), std::string::npos) << text;
}

}  // namespace
}  // namespace automodel::launcher

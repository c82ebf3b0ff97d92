#include "checkpoint/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "core/process.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class FolderLockTest : public testing::Test {
 protected:
  test::TemporaryDirectory folder_;
  std::string root_ = folder_.file("a/b");
  test::Warnings warnings_;
};

TEST_F(FolderLockTest, KeepsASecondRunOutAsLongAsItLives) {
  std::optional<FolderLock> first = FolderLock::of_run(root_, warnings_);
  const std::string error =
      test::error_of<InputError>([&] { FolderLock::of_run(root_, warnings_); });
  EXPECT_THAT(error, AllOf(StartsWith(cat("checkpoint folder ", root_,
                                          " is in use by another run (process ",
                                          int64_t{::getpid()}, " on host ")),
                           HasSubstr("; wait until it has ended, or choose another "
                                     "checkpoint.checkpoint_dir")));
  first.reset();
  FolderLock::of_run(root_, warnings_);
  EXPECT_THAT(warnings_.texts, testing::IsEmpty());
}

/// A lock lives as long as some process has its file open, here a child of the process that took
/// it, as the lock of a killed process lives until the disk has taken what it wrote.
TEST_F(FolderLockTest, WaitsForARunThatWasKilledAndHasNotEndedYet) {
  constexpr double kSeconds = 1;
  const double begin = monotonic_seconds();
  const pid_t run = ::fork();
  if (run == 0) {
    const FolderLock lock = FolderLock::of_run(root_, warnings_);
    if (::fork() == 0) ::usleep(static_cast<useconds_t>(1e6 * kSeconds));
    ::_exit(0);
  }
  // Ended and not waited for, as a process whose parent is busy.
  while (!has_ended(run)) ::usleep(1000);
  EXPECT_THAT(test::error_of<InputError>([&] { FolderLock::of_run(root_, warnings_, 0.1); }),
              StartsWith(cat("checkpoint folder ", root_, " is in use by another run (process ",
                             int64_t{run}, " on host ")));
  ::waitpid(run, nullptr, 0);
  FolderLock::of_run(root_, warnings_);
  EXPECT_GE(monotonic_seconds() - begin, kSeconds);
}

TEST_F(FolderLockTest, WaitsForRanksThatARunHasLeft) {
  constexpr double kSeconds = 0.1;
  std::optional<FolderLock> run = FolderLock::of_run(root_, warnings_);
  std::optional<FolderLock> rank_1 = FolderLock::of_rank(root_, run->owner());
  std::optional<FolderLock> rank_2 = FolderLock::of_rank(root_, run->owner());  // they share it
  run.reset();
  rank_1.reset();
  EXPECT_THAT(test::error_of<InputError>([&] { FolderLock::of_run(root_, warnings_, kSeconds); }),
              StartsWith(cat("checkpoint folder ", root_,
                             " is in use by ranks that are left of another ")));
  rank_2.reset();
  EXPECT_EQ(test::error_of<InputError>([&] { FolderLock::of_run(root_, warnings_, kSeconds); }),
            "no error");
}

/// Hosts that do not share the folder have another one, or none, in its place.
TEST_F(FolderLockTest, ARankSeesTheFolderThatRankZeroHas) {
  constexpr double kSeconds = 0.1;
  const FolderLock run = FolderLock::of_run(root_, warnings_);
  const std::string elsewhere = path_join(root_, "elsewhere");
  const auto error_at = [&](const std::string& folder, const std::string& owner) {
    return test::error_of<InputError>([&] { FolderLock::of_rank(folder, owner, kSeconds); });
  };
  EXPECT_EQ(error_at(root_, run.owner()), "no error");
  EXPECT_EQ(error_at(elsewhere, ""), "no error");
  const std::string wanted =
      cat("checkpoint folder ", elsewhere, " on host ", host_name(),
          " is not the one that rank 0 has (", run.owner(),
          "): checkpoint.checkpoint_dir must be a folder that all hosts share");
  EXPECT_EQ(error_at(elsewhere, run.owner()), wanted);
  std::filesystem::create_directory(elsewhere);
  const FolderLock other = FolderLock::of_run(elsewhere, warnings_);
  write_file_atomic(path_join(elsewhere, kLockName), "process 1 on host b since yesterday");
  EXPECT_EQ(error_at(elsewhere, run.owner()), wanted);
}

}  // namespace
}  // namespace automodel::checkpoint

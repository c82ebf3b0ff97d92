#include "core/system_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <new>
#include <system_error>

#include "core/error.h"
#include "core/file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel {
namespace {

TEST(SystemLimitsTest, OpenFilesAreCountedAgainstTheLimit) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 100;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  check_open_files(100, "the store of 4 ranks");
  EXPECT_EQ(
      test::error_of<UserError>([] { check_open_files(101, "the store of 4 ranks"); }),
      "a process may have 100 files open here, and the store of 4 ranks needs up to 101: raise "
      "the limit (ulimit -n 101)");
  raise_open_files();
  rlimit raised{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &raised), 0);
  EXPECT_EQ(raised.rlim_cur, before.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// In a process of its own that has address space for some threads' stacks.
TEST(SystemLimitsTest, ThreadsThatTheSystemRefusesAreNamed) {
  const test::TemporaryDirectory folder;
  const pid_t child = ::fork();
  if (child == 0) {
    std::ifstream sizes("/proc/self/statm");
    rlim_t num_pages = 0;
    sizes >> num_pages;
    const rlim_t most = num_pages * 4096 + (rlim_t{256} << 20);
    const rlimit limit{most, most};
    ::setrlimit(RLIMIT_AS, &limit);
    check_threads(3);
    try {
      check_threads(1000);
    } catch (const UserError& error) {
      write_file_atomic(folder.file("said"), error.what());
      ::_exit(static_cast<int>(error.code()));
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ExitCode::kRankFailed));
  EXPECT_EQ(
      read_file(folder.file("said")),
      "the system starts no more threads: raise the limit of processes (ulimit -u, pids.max of "
      "the control group) or of address space (ulimit -v), or use fewer threads "
      "(OMP_NUM_THREADS, dataloader.num_workers)");
}
#endif

TEST(SystemLimitsTest, AShortageOfThreadsIsToldFromOtherFailures) {
  const auto is_shortage = [](std::errc code) {
    return thread_shortage(std::system_error(std::make_error_code(code))).has_value();
  };
  EXPECT_TRUE(is_shortage(std::errc::resource_unavailable_try_again));
  EXPECT_FALSE(is_shortage(std::errc::permission_denied));
  EXPECT_FALSE(thread_shortage(std::bad_alloc()));
}

}  // namespace
}  // namespace automodel

#include "core/system_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <new>
#include <system_error>

#include "core/error.h"
#include "support/errors.h"

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

TEST(SystemLimitsTest, ThreadsThatTheSystemRefusesAreAShortage) {
  check_threads(3);
  const auto is_shortage = [](std::errc code) {
    return thread_shortage(std::system_error(std::make_error_code(code))).has_value();
  };
  EXPECT_TRUE(is_shortage(std::errc::resource_unavailable_try_again));
  EXPECT_FALSE(is_shortage(std::errc::permission_denied));
  EXPECT_FALSE(thread_shortage(std::bad_alloc()));
}

}  // namespace
}  // namespace automodel

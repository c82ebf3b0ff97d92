#include "core/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace automodel {
namespace {

TEST(ProcessTest, EndsBeforeAnybodyWaitsForIt) {
  EXPECT_FALSE(has_ended(::getpid()));
  EXPECT_FALSE(is_ending(::getpid()));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t told{};
  ::waitid(P_PID, static_cast<id_t>(child), &told, WEXITED | WNOWAIT);
  for (const bool is_waited_for : {false, true}) {
    if (is_waited_for) ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(has_ended(child)) << is_waited_for;
    EXPECT_TRUE(is_ending(child)) << is_waited_for;
  }
}

}  // namespace
}  // namespace automodel

#include "training/signals.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "core/error.h"

namespace automodel::training {
namespace {

TEST(SignalsTest, NamesAreReadInAnyForm) {
  EXPECT_EQ(parse_signal("SIGTERM"), SIGTERM);
  EXPECT_EQ(parse_signal("usr1"), SIGUSR1);
  EXPECT_EQ(parse_signal("15"), 15);
  EXPECT_EQ(parse_signal("SIGKILL"), std::nullopt);
}

TEST(SignalsTest, RefusesUnknownAndRepeatedSignals) {
  EXPECT_THROW(parse_signals({"SIGTERM", "TERM"}), UserError);
  try {
    parse_signals({"SIGTREM"});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "step_scheduler.preemption_signal: unknown signal 'SIGTREM'; did you mean "
                 "'SIGTERM'?");
  }
}

TEST(SignalsTest, RemembersASignal) {
  const SignalWatch watch({"SIGUSR1"});
  EXPECT_EQ(watch.received(), 0);
  ::raise(SIGUSR1);
  EXPECT_EQ(watch.received(), SIGUSR1);
}

TEST(SignalsTest, ASecondOneAtTheEndOfARunThatWasToldToEndHasNoEffect) {
  EXPECT_EXIT(
      {
        {
          const SignalWatch watch({"SIGUSR1"});
          ::raise(SIGUSR1);
        }
        ::raise(SIGUSR1);
        ::_exit(75);
      },
      testing::ExitedWithCode(75), "");
  EXPECT_EXIT(
      {
        { const SignalWatch watch({"SIGUSR1"}); }
        ::raise(SIGUSR1);
        ::_exit(75);
      },
      testing::KilledBySignal(SIGUSR1), "");
}

}  // namespace
}  // namespace automodel::training

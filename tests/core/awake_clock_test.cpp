#include "core/awake_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace automodel {
namespace {

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

TEST(AwakeClockTest, CountsAsAnyClockWhileItIsRead) {
  AwakeClock clock(60);
  const double begin = monotonic_seconds();
  double last = 0;
  for (int i = 0; i < 5; ++i) {
    sleep_for(0.01);
    const double now = clock.seconds();
    EXPECT_GE(now, last + 0.01);
    last = now;
  }
  EXPECT_LE(last, monotonic_seconds() - begin + 0.01);
}

TEST(AwakeClockTest, CountsLittleOfALongTimeWithoutAReading) {
  AwakeClock clock(0.01);
  sleep_for(0.2);
  EXPECT_DOUBLE_EQ(clock.seconds(), 0.01);
  sleep_for(0.2);
  EXPECT_DOUBLE_EQ(clock.seconds(), 0.02);
}

}  // namespace
}  // namespace automodel

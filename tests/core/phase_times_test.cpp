#include "core/phase_times.h"

#include <gtest/gtest.h>

#include "core/clock.h"

namespace automodel {
namespace {

TEST(PhaseTimesTest, PhasesAddUpToTheTimeSinceTheBeginning) {
  PhaseTimes times(monotonic_seconds() - 2);
  times.add("one", 0.5);
  times.end("two");
  times.add("one", 0.25);
  ASSERT_EQ(times.phases().size(), 2U);
  EXPECT_EQ(times.phases()[0].name, "one");
  EXPECT_DOUBLE_EQ(times.phases()[0].seconds, 0.75);
  EXPECT_GE(times.phases()[1].seconds, 1.5);
  EXPECT_NEAR(times.total_seconds(), times.phases()[0].seconds + times.phases()[1].seconds, 1e-9);
}

TEST(PhaseTimesTest, TheMillisecondsOfATableAddUpAsTheyAreWritten) {
  PhaseTimes times(0);
  times.add("loading", 0.10004);
  times.add("a long name", 0.00004);
  times.add("x", 0.00004);
  times.add("rest", 0.1);
  EXPECT_EQ(table_of(times),
            (std::vector<std::string>{
                "loading         100.0 ms   50.0 %", "a long name       0.1 ms    0.0 %",
                "x                 0.0 ms    0.0 %", "rest            100.0 ms   50.0 %"}));
  EXPECT_TRUE(table_of(PhaseTimes(1)).empty());
}

}  // namespace
}  // namespace automodel

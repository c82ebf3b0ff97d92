#include "training/norm_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace automodel::training {
namespace {

TEST(NormWatchTest, ANormFarAboveTheMedianIsASpikeOnceTwentyAreKnown) {
  NormWatch watch(10);
  for (int i = 0; i < 19; ++i) watch.add(1 + 0.1 * i);
  EXPECT_FALSE(watch.is_spike(1000));
  watch.add(2.9);
  EXPECT_EQ(watch.usual(), 2);
  EXPECT_FALSE(watch.is_spike(20));
  EXPECT_TRUE(watch.is_spike(20.01));
  EXPECT_TRUE(watch.is_spike(std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(watch.is_spike(std::nan("")));
}

TEST(NormWatchTest, NormsThatStayHighBecomeTheUsualOnes) {
  NormWatch watch(10);
  for (int i = 0; i < 200; ++i) watch.add(1);
  int num_spikes = 0;
  while (watch.is_spike(50)) {
    watch.add(50);
    ++num_spikes;
  }
  EXPECT_EQ(num_spikes, 32);
}

TEST(NormWatchTest, NormsThatAreNotFiniteChangeNothing) {
  NormWatch watch(2);
  for (int i = 0; i < 20; ++i) watch.add(1);
  for (int i = 0; i < 64; ++i) watch.add(std::numeric_limits<double>::infinity());
  EXPECT_EQ(watch.usual(), 1);
}

/// Most steps have nothing that counts, as where long prompts are cut.
TEST(NormWatchTest, StepsWithoutAGradientAreNotTheUsualOnes) {
  NormWatch watch(10);
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(watch.is_spike(4)) << i;
    watch.add(i % 5 == 0 ? 4 : 0);
  }
  EXPECT_EQ(watch.usual(), 4);
  EXPECT_TRUE(watch.is_spike(41));
}

TEST(NormWatchTest, ItsStateSaysTheSame) {
  NormWatch watch(2), other(2);
  for (int i = 0; i < 100; ++i) watch.add(1.0 / (1 + i));
  other.add(77);
  other.load_state(Json::parse(watch.state().dump(), "state"));
  EXPECT_EQ(other.state().dump(), watch.state().dump());
  EXPECT_EQ(other.usual(), watch.usual());
}

}  // namespace
}  // namespace automodel::training

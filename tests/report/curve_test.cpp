#include "report/records/curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace automodel::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(CurveTest, AColumnHoldsTheLowestAndHighestOfItsRecords) {
  std::vector<double> x, y;
  for (int i = 0; i < 1000; ++i) {
    x.push_back(i);
    y.push_back(1);
  }
  y[503] = 9;  // one spike among a thousand
  y[504] = -4;
  const Curve curve = make_curve(x, y, range_of(x), 10, 1);
  ASSERT_EQ(curve.columns.size(), 10U);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(curve.columns[i].low, i == 5 ? -4 : 1);
    EXPECT_EQ(curve.columns[i].high, i == 5 ? 9 : 1);
  }
  EXPECT_TRUE(curve.non_finite_x.empty());
}

TEST(CurveTest, WhatIsNotFiniteIsMarkedAndNotDrawn) {
  const std::vector<double> x = {0, 1, 2, 3, kNaN}, y = {1, kNaN, INFINITY, 2, 7};
  const Curve curve = make_curve(x, y, range_of(x), 4, 1);
  ASSERT_EQ(curve.columns.size(), 2U);
  EXPECT_EQ(curve.columns[1].high, 2);
  EXPECT_EQ(curve.non_finite_x.size(), 2U);
}

TEST(CurveTest, OneRecordAndNoneAreCurves) {
  EXPECT_TRUE(make_curve({}, {}, range_of({}), 5, 1).columns.empty());
  const Curve one = make_curve({7}, {3}, range_of({7}), 5, 1);
  ASSERT_EQ(one.columns.size(), 1U);
  EXPECT_EQ(one.columns[0].x, 7);
}

TEST(CurveTest, SmoothingBeginsAtTheFirstRecordAndFollowsALevel) {
  std::vector<double> x, y;
  for (int i = 0; i < 400; ++i) {
    x.push_back(i);
    y.push_back(i < 200 ? 2 : 6);
  }
  const Curve curve = make_curve(x, y, range_of(x), 400, 10);
  EXPECT_EQ(curve.columns[0].smooth, 2);
  EXPECT_GT(curve.columns[205].smooth, 3);
  EXPECT_LT(curve.columns[205].smooth, 5);
  EXPECT_NEAR(curve.columns[399].smooth, 6, 1e-6);
  EXPECT_EQ(make_curve(x, y, range_of(x), 400, 1).columns[200].smooth, 6);
}

TEST(CurveTest, TicksAreRoundNumbers) {
  using testing::DoubleEq;
  using testing::ElementsAre;
  EXPECT_THAT(ticks_of({0, 10, false}, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks_of({-1, 1, false}, 4), ElementsAre(-1, -0.5, 0, 0.5, 1));
  EXPECT_FALSE(std::signbit(ticks_of({-1e-13, 1, false}, 4)[0]));
  EXPECT_THAT(log_ticks_of({0.005, 200, false}, 9), ElementsAre(0.01, 0.1, 1, 10, 100));
  EXPECT_THAT(log_ticks_of({2, 3, false}, 2), ElementsAre(2, 2.5, 3));
  EXPECT_THAT(ticks_of({3, 3, false}, 4), ElementsAre(3));
}

}  // namespace
}  // namespace automodel::report

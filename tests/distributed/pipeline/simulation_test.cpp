#include "distributed/pipeline/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "distributed/pipeline/schedule_csv.h"
#include "support/errors.h"

namespace automodel::distributed {
namespace {

using enum ScheduleKind;

Simulation run(ScheduleKind kind, const ScheduleShape& shape, const ActionCosts& costs = {}) {
  return simulate(make_schedule(kind, shape), costs);
}

/// GPipe and 1F1B lose the time of ranks - 1 micro-batches.
TEST(SimulationTest, SingleStageSchedulesReachTheirTheoreticalBubble) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (const int microbatches : {8, 16, 32}) {
      const double wanted = (ranks - 1.0) / (microbatches + ranks - 1.0);
      EXPECT_NEAR(run(kGPipe, {ranks, 1, microbatches}).bubble_fraction(), wanted, 1e-12);
      EXPECT_NEAR(run(k1F1B, {ranks, 1, microbatches}).bubble_fraction(), wanted, 1e-12);
    }
  }
}

/// Interleaved stages, each a part of a rank's layers, lose as many times less.
TEST(SimulationTest, InterleavedSchedulesReachTheirTheoreticalBubble) {
  for (const int ranks : {2, 4, 8}) {
    for (const int stages : {2, 3, 4}) {
      for (const int rounds : {1, 2, 4}) {
        const int microbatches = rounds * ranks;
        const double wanted = (ranks - 1.0) / (stages * microbatches + ranks - 1.0);
        const ScheduleShape shape{ranks, stages, microbatches};
        EXPECT_NEAR(run(kInterleaved1F1B, shape).bubble_fraction(), wanted, 1e-12)
            << ranks << " ranks, " << stages << " stages, " << microbatches;
        EXPECT_NEAR(run(kLoopedBFS, shape).bubble_fraction(), wanted, 1e-12);
      }
    }
  }
}

/// ZB1P: (ranks - 1) * (F + I - W) where 1F1B loses (ranks - 1) * (F + I + W).
TEST(SimulationTest, ZeroBubbleLosesAThirdOfWhatInterleavingLoses) {
  for (const int ranks : {2, 4, 8}) {
    for (const int stages : {2, 3}) {
      const ScheduleShape shape{ranks, stages, 4 * ranks};
      const double work = 3.0 * stages * shape.num_microbatches;
      const double wanted = (ranks - 1.0) / (work + ranks - 1.0);
      EXPECT_NEAR(run(kInterleavedZeroBubble, shape).bubble_fraction(), wanted, 1e-12)
          << ranks << " ranks, " << stages << " stages";
    }
  }
}

/// ZBV: once a rank has begun it never waits; ranks begin and end one action apart.
TEST(SimulationTest, NoRankOfAZeroBubbleVWaitsOnceItHasBegun) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (const int microbatches : {2 * ranks - 1, 2 * ranks, 4 * ranks}) {
      const Simulation result = run(kZBVZeroBubble, {ranks, 2, microbatches});
      for (size_t rank = 0; rank < result.busy.size(); ++rank) {
        EXPECT_EQ(result.begin[rank], static_cast<double>(rank));
        EXPECT_EQ(result.end[rank] - result.begin[rank], result.busy[rank])
            << "rank " << rank << " of " << ranks << ", " << microbatches;
      }
    }
  }
}

TEST(SimulationTest, PeaksOfActivationsAreThoseOfTheSchedules) {
  EXPECT_EQ(run(kGPipe, {4, 1, 8}).peak_in_flight, (std::vector<int>{8, 8, 8, 8}));
  EXPECT_EQ(run(k1F1B, {4, 1, 8}).peak_in_flight, (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(run(kInterleaved1F1B, {2, 2, 8}).peak_in_flight, (std::vector<int>{5, 3}));
  EXPECT_EQ(run(kLoopedBFS, {2, 2, 8}).peak_in_flight, (std::vector<int>{16, 16}));
}

TEST(SimulationTest, TransfersLengthenTheStep) {
  EXPECT_EQ(run(kGPipe, {2, 1, 1}).duration, 6);
  EXPECT_EQ(run(kGPipe, {2, 1, 1}, {.transfer = 0.5}).duration, 7);
}

TEST(SimulationTest, EveryBorderBetweenRanksIsCrossedTwiceByEveryMicrobatch) {
  EXPECT_EQ(run(k1F1B, {4, 1, 8}).messages.size(), 2 * 3 * 8);
  EXPECT_EQ(run(kInterleaved1F1B, {2, 2, 4}).messages.size(), 2 * 3 * 4);
  // The V's lowest two stages are on one rank.
  EXPECT_EQ(run(kZBVZeroBubble, {2, 2, 4}).messages.size(), 2 * 2 * 4);
}

TEST(SimulationTest, ACircleOfWaitsIsNamed) {
  const PipelineSchedule schedule =
      parse_schedule_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "a.csv", {2, 1, 2});
  EXPECT_EQ(simulate(schedule).deadlock,
            "rank 0 waits before 0B0 (its action 2) for 1B0 of rank 1; rank 1 waits before 1F1 "
            "(its action 2) for 0F1 of rank 0");
}

/// Any shape, torch's or not: all ranks come to their ends, every action once.
TEST(SimulationTest, TenThousandRandomShapesNeverDeadlock) {
  constexpr ScheduleKind kKinds[] = {
      kGPipe, k1F1B, kInterleaved1F1B, kLoopedBFS, kInterleavedZeroBubble, kZBVZeroBubble};
  std::mt19937 random(17);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  int num_made = 0;
  while (num_made < 10000) {
    const ScheduleKind kind = kKinds[draw(0, 5)];
    const int stages = kind == kZBVZeroBubble ? 2 : is_multi_stage(kind) ? draw(1, 4) : 1;
    const ScheduleShape shape{draw(1, 8), stages, draw(1, 20)};
    const std::string finding = schedule_finding(kind, shape);
    if (!finding.empty() && kind != k1F1B) continue;
    num_made += 1;
    const PipelineSchedule schedule = make_schedule(kind, shape);
    ASSERT_EQ(find_schedule_fault(schedule), "");
    ASSERT_EQ(simulate(schedule).deadlock, "") << schedule_name(kind) << " " << shape.num_ranks
                                               << " " << stages << " " << shape.num_microbatches;
    const PipelineSchedule plain = make_plain_schedule(kind, shape, schedule.rank_of_stage);
    ASSERT_EQ(find_schedule_fault(plain), "");
    ASSERT_EQ(simulate(plain).deadlock, "");
  }
}

/// Where in a rank's list a message is made, and where it is needed first.
std::pair<size_t, size_t> places_of(const PipelineSchedule& schedule,
                                    const PipelineMessage& message) {
  const auto& makes = schedule.actions[static_cast<size_t>(message.from)];
  const auto& takes = schedule.actions[static_cast<size_t>(message.to)];
  const auto needs = [&](const PipelineAction& action) {
    const auto all = needs_of(action, schedule.shape.num_stages());
    return std::find(all.begin(), all.end(), message.maker) != all.end();
  };
  return {std::find(makes.begin(), makes.end(), message.maker) - makes.begin(),
          std::find_if(takes.begin(), takes.end(), needs) - takes.begin()};
}

/// Ends that start their messages in this order, sends when they are made and receives when they
/// are needed or before, never wait in a circle.
TEST(SimulationTest, MessagesAreInAnOrderThatBothEndsCanKeep) {
  for (const ScheduleKind kind :
       {kGPipe, k1F1B, kInterleaved1F1B, kLoopedBFS, kInterleavedZeroBubble, kZBVZeroBubble}) {
    for (const int ranks : {2, 3, 4}) {
      const int stages = is_multi_stage(kind) ? 2 : 1;
      const PipelineSchedule schedule = make_schedule(kind, {ranks, stages, 2 * ranks});
      const std::vector<PipelineMessage> messages = simulate(schedule).messages;
      for (int rank = 0; rank < ranks; ++rank) {
        size_t num_made = 0;  // actions of the rank that its earlier sends wait for
        for (const PipelineMessage& message : messages) {
          const auto [made, needed] = places_of(schedule, message);
          if (message.from == rank) {
            EXPECT_GE(made + 1, num_made) << schedule_name(kind) << " " << message.maker.text();
            num_made = std::max(num_made, made + 1);
          }
          if (message.to == rank) {
            EXPECT_GE(needed, num_made) << schedule_name(kind) << " " << message.maker.text();
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace automodel::distributed

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/csrc/autograd/autograd.h>

#include "comm/patience.h"
#include "comm/ranks.h"
#include "distributed/engine/sharded_engine.h"
#include "distributed/toy_modules.h"

namespace automodel::distributed {
namespace {

using comm::RanksOptions;
using comm::RanksResult;

enum class Fault { kKill, kStop, kThrow };
enum class Phase { kGather, kBackward, kReduce, kSave };

using Case = std::tuple<Fault, Phase>;

std::string name_of(Fault fault) {
  return fault == Fault::kKill ? "Kill" : fault == Fault::kStop ? "Stop" : "Throw";
}

std::string name_of(Phase phase) {
  switch (phase) {
    case Phase::kGather:
      return "Gather";
    case Phase::kBackward:
      return "Backward";
    case Phase::kReduce:
      return "Reduce";
    case Phase::kSave:
      return "Save";
  }
  return "";
}

void fail(Fault fault) {
  if (fault == Fault::kKill) ::raise(SIGKILL);
  if (fault == Fault::kStop) comm::hang();
  throw std::runtime_error("rank 1 ran out of luck");
}

/// A step whose rank 1 fails where the case says, after a good one.
void step(ToyNet& net, ShardedEngine& engine, const comm::ProcessGroup& group,
          std::optional<Case> fault) {
  const auto at = [&](Phase phase) {
    if (fault && group.rank() == 1 && std::get<1>(*fault) == phase) fail(std::get<0>(*fault));
  };
  at(Phase::kGather);  // the others gather the root
  const at::Tensor loss = net.loss(toy_input(group.rank()));
  loss.register_hook([&](const at::Tensor&) { at(Phase::kBackward); });
  engine.begin_micro_batch(false);
  loss.backward();
  at(Phase::kReduce);  // backward has reduced nothing: the others do now
  engine.reduce_gradients();
  engine.zero_gradients();
  at(Phase::kSave);  // the others wait for this rank's file
  group.barrier();
}

class FailurePhasesTest : public testing::TestWithParam<Case> {};

TEST_P(FailurePhasesTest, TheOthersEndInTimeAndNameTheRank) {
  const Fault fault = std::get<0>(GetParam());
  // Only a stopped rank is missed by the time that passes.
  RanksOptions options = comm::patient();
  if (fault == Fault::kStop) options.timeout_seconds = 2;
  const double begin = monotonic_seconds();
  const RanksResult result = comm::run_ranks(
      3,
      [](comm::World& world) {
        ToyNet net;
        shard_toy(net, world.group());
        ShardedEngine engine(net);
        step(net, engine, world.group(), {});
        step(net, engine, world.group(), GetParam());
      },
      options);
  EXPECT_LT(monotonic_seconds() - begin, comm::kHangSeconds);
  EXPECT_NE(result.status, 0);
  for (const size_t rank : {0U, 2U}) {
    EXPECT_THAT(result.errors[rank], testing::HasSubstr("rank 1"));
    EXPECT_EQ(result.kinds[rank], "PeerFailure") << result.errors[rank];
    if (fault == Fault::kThrow) {
      EXPECT_THAT(result.errors[rank], testing::HasSubstr("rank 1 ran out of luck"));
    }
    if (fault == Fault::kStop) {
      EXPECT_THAT(result.errors[rank], testing::HasSubstr("no sign of life"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FailurePhasesTest,
                         testing::Combine(testing::Values(Fault::kKill, Fault::kStop,
                                                          Fault::kThrow),
                                          testing::Values(Phase::kGather, Phase::kBackward,
                                                          Phase::kReduce, Phase::kSave)),
                         [](const testing::TestParamInfo<Case>& info) {
                           return name_of(std::get<0>(info.param)) + "In" +
                                  name_of(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace automodel::distributed

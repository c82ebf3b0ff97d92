#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "comm/ranks.h"
#include "distributed/engine/sharded_engine.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/sgd_step.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "distributed/toy_modules.h"
#include "kernels/optimizer/optimizer_step.h"

namespace automodel::distributed {
namespace {

using comm::expect;
using comm::expect_ranks;
using comm::ProcessGroup;

/// Ranks are forked, which only a process of one thread may do.
class OneThread final : public testing::Environment {
 public:
  void SetUp() override { at::set_num_threads(1); }
};
[[maybe_unused]] const auto* const kOneThread = testing::AddGlobalTestEnvironment(new OneThread);

/// Plain steps of SGD on the mean of the ranks' losses, in float64.
std::map<std::string, at::Tensor> plain_weights(int num_ranks, int num_steps, int num_micro,
                                                int num_blocks = 3) {
  ToyNet net(num_blocks);
  net.to(at::kDouble);
  for (int step = 0; step < num_steps; ++step) {
    for (int i = 0; i < num_ranks * num_micro; ++i) {
      (net.loss(toy_input(step * 10 + i).to(at::kDouble)) / num_ranks).backward();
    }
    const at::NoGradGuard no_grad;
    for (auto& item : net.named_parameters()) {
      item.value().sub_(item.value().grad(), 0.1);
      item.value().mutable_grad().zero_();
    }
  }
  std::map<std::string, at::Tensor> weights;
  for (const auto& item : net.named_parameters()) weights[item.key()] = item.value().detach();
  return weights;
}

void train(ToyNet& net, ShardedEngine& engine, const ProcessGroup& group, int num_steps,
           int num_micro) {
  for (int step = 0; step < num_steps; ++step) {
    for (int i = 0; i < num_micro; ++i) {
      engine.begin_micro_batch(i + 1 == num_micro);
      net.loss(toy_input(step * 10 + i * group.size() + group.rank())).backward();
      engine.end_micro_batch();
    }
    engine.reduce_gradients();
    sgd_step(engine);
  }
}

void expect_weights(ToyNet& net, const std::map<std::string, at::Tensor>& wanted,
                    double tolerance = 2e-6) {
  unshard_fsdp2_model(net, [&] {
    for (const auto& item : net.named_parameters()) {
      const at::Tensor& right = wanted.at(item.key());
      const double error = (item.value() - right).abs().max().item<double>();
      const double size = right.abs().max().item<double>();
      expect(error <= tolerance * size, cat(item.key(), " is off by ", error, " of ", size));
    }
  });
}

ShardingOptions zero(int strategy) {
  MegatronFSDPConfig config;
  config.zero_dp_strategy = strategy;
  return sharding_options(config, at::kCPU);
}

void expect_plain_weights(int num_ranks, const ShardingOptions& options) {
  for (const int num_micro : {1, 3}) {
    const auto wanted = plain_weights(num_ranks, 3, num_micro);
    expect_ranks(num_ranks, [&](comm::World& world) {
      ToyNet net;
      shard_toy(net, world.group(), options);
      ShardedEngine engine(net);
      train(net, engine, world.group(), 3, num_micro);
      expect_weights(net, wanted);
    });
  }
}

TEST(PlacementsTest, WeightsAfterStepsAreThePlainOnesWhateverIsSharded) {
  for (const int strategy : {1, 2, 3}) {
    SCOPED_TRACE(strategy);
    expect_plain_weights(2, zero(strategy));
  }
  expect_plain_weights(2, {});
  expect_plain_weights(4, {});
}

TEST(PlacementsTest, EveryScalingGivesTheAverageAndTheSumIsTheGroupsMultiple) {
  ShardingOptions options;
  options.scaling = GradientScaling::kAverage;
  expect_plain_weights(2, options);
  options.scaling = GradientScaling::kDivideThenSum;
  expect_plain_weights(2, options);
  expect_ranks(2, [](comm::World& world) {
    const auto norm = [&](GradientScaling scaling) {
      ShardingOptions one;
      one.scaling = scaling;
      ToyNet net;
      shard_toy(net, world.group(), one);
      const ShardedEngine engine(net);
      net.loss(toy_input(world.group().rank())).backward();
      return engine.gradient_norm();
    };
    const double ratio = norm(GradientScaling::kSum) / norm(GradientScaling::kSumThenDivide);
    expect(std::abs(ratio - 2) < 1e-6, cat("per-token gradients are ", ratio, " times"));
  });
}

/// Collectives of three steps of two micro-batches, and bytes that stay after them.
struct Cost {
  int64_t gathers = 0;
  int64_t reductions = 0;
  int64_t resting_bytes = 0;

  bool operator==(const Cost&) const = default;
  std::string text() const {
    return cat(gathers, " gathers, ", reductions, " reductions, ", resting_bytes, " bytes");
  }
};

Cost cost_of(const ProcessGroup& group, const ShardingOptions& options) {
  ToyNet net;
  shard_toy(net, group, options);
  ShardedEngine engine(net);
  train(net, engine, group, 3, 2);
  Cost cost{engine.counts().gathers, engine.counts().reductions, 0};
  for (const FSDPModule* unit : engine.root().tree_units())
    cost.resting_bytes += unit->resting_bytes();
  return cost;
}

TEST(PlacementsTest, CollectivesAndMemoryOfEveryStrategy) {
  expect_ranks(2, [](comm::World& world) {
    // Blocks of 30, 5 and 30 elements on borders of 16, padded to ranges of 48; a root of 6.
    const int64_t whole = 4 * (3 * 96 + 32), part = whole / 2;
    const auto check = [&](const ShardingOptions& options, const Cost& wanted) {
      const Cost found = cost_of(world.group(), options);
      expect(found == wanted, cat("found ", found.text(), ", wanted ", wanted.text()));
    };
    check(zero(1), {3 * 4, 3 * 4, whole + whole});
    check(zero(2), {3 * 4, 3 * 2 * 4, whole});
    check(zero(3), {3 * 2 * (2 * 3 + 2), 3 * 2 * 4, part});
    check({}, {3 * 2 * (2 * 3 + 1), 3 * 4, part});
  });
}

TEST(PlacementsTest, PreservedWeightsCollectUpdatesBelowTheRoundingOfTheStoredDtype) {
  const auto moved = [](bool preserves) {
    MegatronFSDPConfig config;
    config.preserve_fp32_weights = preserves;
    config.grad_reduce_in_fp32 = preserves;
    ToyNet net;
    net.to(at::kBFloat16);
    const at::Tensor before = net.blocks()[0]->named_parameters()["in"].to(at::kFloat).clone();
    const auto solo = ProcessGroup::solo();
    shard_toy(net, solo, sharding_options(config, at::kCPU));
    ShardedEngine engine(net);
    for (int step = 0; step < 64; ++step) {
      const at::NoGradGuard no_grad;
      for (const tensor::FlatShard& shard : engine.trained())
        at::Tensor(shard.buffer).mul_(1 + 1e-4);
      engine.parameters_changed();
    }
    at::Tensor after;
    unshard_fsdp2_model(
        net, [&] { after = net.blocks()[0]->named_parameters()["in"].to(at::kFloat).clone(); });
    return ((after - before).abs().sum() / before.abs().sum()).item<double>();
  };
  EXPECT_EQ(moved(false), 0);
  EXPECT_NEAR(moved(true), 64e-4, 1e-3);
}

TEST(PlacementsTest, SumsInFloat32AreNearerToTheTruthThanInBfloat16) {
  expect_ranks(4, [](comm::World& world) {
    const auto error = [&](at::ScalarType reduce) {
      ShardingOptions options;
      options.reduce_dtype = reduce;
      ToyNet net(1);
      shard_toy(net, world.group(), options);
      ShardedEngine engine(net);
      net.loss(toy_input(world.group().rank())).backward();
      ToyNet plain(1);
      for (int i = 0; i < 4; ++i) (plain.loss(toy_input(i)) / 4).backward();
      double sum = 0;
      for (const tensor::FlatShard& shard : engine.gradients()) {
        for (const tensor::FlatSegment& segment : shard.segments) {
          const at::Tensor whole = plain.named_parameters()[segment.fqn].grad().flatten();
          const at::Tensor right = whole.slice(0, segment.spec.flat_begin, segment.spec.flat_end);
          sum += (shard.view(segment) - right).abs().sum().item<double>();
        }
      }
      at::Tensor total = at::tensor({sum}, at::kDouble);
      world.group().all_reduce(total, comm::ReduceOp::kSum);
      return total.item<double>();
    };
    expect(error(at::kFloat) * 100 < error(at::kBFloat16), "no more exact in float32");
  });
}

TEST(PlacementsTest, HsdpReplicasAreEqualToTheBit) {
  const auto wanted = plain_weights(4, 3, 1);
  expect_ranks(4, [&](comm::World& world) {
    const ShardingGroups groups{world.group(), world.split("dp_shard", {{0, 1}, {2, 3}}),
                                world.split("dp_replicate", {{0, 2}, {1, 3}})};
    ToyNet net;
    for (const auto& block : net.blocks()) fully_shard(*block, groups);
    fully_shard(net, groups);
    ShardedEngine engine(net);
    train(net, engine, world.group(), 3, 1);
    for (const tensor::FlatShard& shard : engine.parameters()) {
      at::Tensor smallest = shard.buffer.clone(), largest = shard.buffer.clone();
      groups.replicate.all_reduce(smallest, comm::ReduceOp::kMin);
      groups.replicate.all_reduce(largest, comm::ReduceOp::kMax);
      expect(at::equal(smallest, largest), "replicas differ");
    }
    expect_weights(net, wanted);
  });
}

TEST(PlacementsTest, ShardsLeftWithoutAnElementTakePart) {
  // 4 ranges of 16 elements: the root's 6 are in the first.
  expect_ranks(4, [](comm::World& world) {
    ToyNet net(0);
    FSDPModule& root = shard_toy(net, world.group());
    ShardedEngine engine(net);
    expect(engine.parameters()[0].segments.empty() == (world.group().rank() > 0), "segments");
    train(net, engine, world.group(), 2, 1);
    expect(root.counts().reductions == 2, "reductions");
    expect_weights(net, plain_weights(4, 2, 1, 0));
  });
}

}  // namespace
}  // namespace automodel::distributed

#include "distributed/engine/sharded_engine.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/golden_toy.h"
#include "distributed/groups/sharding_groups.h"
#include "tensor/random.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {
namespace {

// Blocks of 65 elements in three parameters, and a root of a scale and a head, 36 elements.
nn::ParallelPlan toy_plan() {
  nn::ParallelPlan plan;
  plan.blocks = {"blocks.0", "blocks.1", "blocks.2"};
  return plan;
}

/// Fills parameters by their names: equal numbers whoever owns the memory.
void fill(const Engine& engine) {
  for (const tensor::FlatShard& shard : engine.parameters()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      const tensor::RandomKey key(7, segment.fqn);
      tensor::fill_initial_values(shard.view(segment), segment.spec,
                                  tensor::InitRule::normal(0.1, 0.4), key);
    }
  }
}

at::Tensor loss_of(GoldenToy& toy, int64_t number) {
  return toy.loss(GoldenToy::rows(4 * number, 4), 4);
}

/// name -> gradient after `num_micro_batches`.
std::map<std::string, at::Tensor> gradients_of(Engine& engine, GoldenToy& toy,
                                               int num_micro_batches) {
  fill(engine);
  for (int i = 0; i < num_micro_batches; ++i) {
    engine.begin_micro_batch(i + 1 == num_micro_batches);
    loss_of(toy, i).backward();
    engine.end_micro_batch();
  }
  engine.reduce_gradients();
  std::map<std::string, at::Tensor> gradients;
  for (const tensor::FlatShard& shard : engine.gradients()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      gradients[segment.fqn] = shard.view(segment).clone();
    }
  }
  return gradients;
}

struct Sharded {
  explicit Sharded(const ShardingOptions& options)
      : engine(toy, toy.keys(), ShardingGroups::of(comm::ProcessGroup::solo()), options) {}

  GoldenToy toy;
  ShardedEngine engine;
};

class FullyShardedPolicyTest : public testing::TestWithParam<ShardingOptions> {};

TEST_P(FullyShardedPolicyTest, GradientsAreThoseOfAModuleThatOwnsItsMemory) {
  GoldenToy whole;
  DataParallel plain(whole, toy_plan(), whole.keys(), comm::ProcessGroup::solo(), {});
  for (const int num_micro_batches : {1, 3}) {
    plain.zero_gradients();
    const auto wanted = gradients_of(plain, whole, num_micro_batches);
    Sharded sharded(GetParam());
    const auto found = gradients_of(sharded.engine, sharded.toy, num_micro_batches);
    ASSERT_EQ(found.size(), 11u);
    for (const auto& [name, gradient] : wanted) {
      EXPECT_TRUE(at::allclose(found.at(name), gradient, 1e-6, 1e-7)) << name;
      EXPECT_GT(gradient.abs().sum().item<float>(), 0) << name;
    }
    EXPECT_NEAR(sharded.engine.gradient_norm(), plain.gradient_norm(), 1e-6);
  }
}

ShardingOptions with(std::optional<bool> reshards, bool defers) {
  ShardingOptions options;
  options.reshard_after_forward = reshards;
  options.defers_gradients = defers;
  return options;
}

INSTANTIATE_TEST_SUITE_P(Policies, FullyShardedPolicyTest,
                         testing::Values(with({}, true), with(true, true), with(false, true),
                                         with({}, false), with(true, false)));

TEST(FullyShardedCountsTest, AllBlocksButTheLastAreGatheredTwice) {
  Sharded sharded(with({}, true));
  gradients_of(sharded.engine, sharded.toy, 1);
  EXPECT_EQ(sharded.engine.counts().gathers, 1 + 2 + 2 + 1);  // the root, the blocks
  EXPECT_EQ(sharded.engine.counts().reductions, 4);
}

TEST(FullyShardedCountsTest, KeepingParametersSavesTheSecondGather) {
  Sharded sharded(with(false, true));
  gradients_of(sharded.engine, sharded.toy, 1);
  EXPECT_EQ(sharded.engine.counts().gathers, 4);
}

TEST(FullyShardedCountsTest, DeferredGradientsAreReducedOncePerStep) {
  Sharded deferred(with({}, true));
  gradients_of(deferred.engine, deferred.toy, 3);
  EXPECT_EQ(deferred.engine.counts().reductions, 4);
  Sharded eager(with({}, false));
  gradients_of(eager.engine, eager.toy, 3);
  EXPECT_EQ(eager.engine.counts().reductions, 12);
}

TEST(FullyShardedTest, ForwardsWithoutGradientsLeaveNothingGathered) {
  Sharded sharded(with(false, true));
  fill(sharded.engine);
  at::NoGradGuard no_grad;
  for (int i = 0; i < 2; ++i) {
    sharded.engine.begin_micro_batch(true);
    loss_of(sharded.toy, 0);
    sharded.engine.end_micro_batch();
    EXPECT_EQ(sharded.engine.counts().gathers, 4 * (i + 1));
  }
}

int64_t resting_bytes(const ShardedEngine& engine) {
  int64_t bytes = 0;
  for (const FSDPModule* unit : engine.root().tree_units()) bytes += unit->resting_bytes();
  return bytes;
}

int64_t bytes_of(const std::vector<tensor::FlatShard>& shards) {
  int64_t bytes = 0;
  for (const tensor::FlatShard& shard : shards) bytes += int64_t(shard.buffer.nbytes());
  return bytes;
}

TEST(FullyShardedTest, ShardedGradientsHaveMemoryFromBackwardUntilTheyAreZeroed) {
  Sharded sharded(with(true, true));
  ShardedEngine& engine = sharded.engine;
  const int64_t parameters = bytes_of(engine.parameters());
  EXPECT_EQ(resting_bytes(engine), parameters);
  const auto first = gradients_of(engine, sharded.toy, 1);
  EXPECT_EQ(resting_bytes(engine), parameters + bytes_of(engine.gradients()));
  engine.zero_gradients();
  EXPECT_EQ(resting_bytes(engine), parameters);
  const auto second = gradients_of(engine, sharded.toy, 1);
  for (const auto& [name, gradient] : first) EXPECT_TRUE(at::equal(second.at(name), gradient));
  engine.zero_gradients();
  engine.reduce_gradients();  // of a step that uses no unit
  EXPECT_EQ(engine.gradient_norm(), 0);
}

TEST(FullyShardedTest, BlocksAreComputedInTheParametersDtype) {
  ShardingOptions options;
  options.param_dtype = at::kBFloat16;
  options.reduce_dtype = at::kFloat;
  options.casts_inputs = true;
  Sharded sharded(options);
  gradients_of(sharded.engine, sharded.toy, 1);
  for (const tensor::FlatShard& shard : sharded.engine.gradients()) {
    EXPECT_EQ(shard.buffer.scalar_type(), at::kFloat);  // as stored
  }
  for (const at::Tensor& parameter : sharded.toy.parameters()) {
    EXPECT_EQ(parameter.scalar_type(), at::kBFloat16);
  }
  // A block of 65 elements takes 30, 5 and 30 on borders of 16; the root's 6 and 30 take 16 and 32.
  const int64_t block = 32 + 16 + 32, root = 16 + 32;
  EXPECT_EQ(sharded.engine.counts().gathered_bytes, 2 * (5 * block + root));
  EXPECT_EQ(sharded.engine.counts().reduced_bytes, 4 * (3 * block + root));
}

TEST(FullyShardedTest, OutputsHaveThePolicysDtype) {
  ShardingOptions options;
  options.param_dtype = at::kBFloat16;
  options.casts_inputs = true;
  const auto dtype_of_output = [&] {
    ToyNet net;
    shard_toy(net, comm::ProcessGroup::solo(), options);
    return net.forward(toy_input(0)).scalar_type();
  };
  EXPECT_EQ(dtype_of_output(), at::kBFloat16);
  options.output_dtype = at::kFloat;
  EXPECT_EQ(dtype_of_output(), at::kFloat);
}

TEST(FullyShardedTest, FrozenParametersAreGatheredAndGetNoGradients) {
  GoldenToy toy;
  for (const auto& item : toy.named_parameters()) {
    if (item.key().starts_with("blocks.1.")) at::Tensor(item.value()).set_requires_grad(false);
  }
  ShardedEngine engine(toy, toy.keys(), ShardingGroups::of(comm::ProcessGroup::solo()), {});
  const auto gradients = gradients_of(engine, toy, 1);
  EXPECT_EQ(gradients.size(), 8u);
  EXPECT_EQ(gradients.count("blocks.1.w1"), 0u);
  EXPECT_EQ(engine.num_trained_parameters(), engine.num_parameters() - 65);
}

TEST(FullyShardedTest, UnknownDtypesOfAPolicyAreNamed) {
  FSDP2Config config;
  config.mp_policy.emplace().param_dtype = "float17";
  try {
    sharding_options(config, at::kCPU);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "distributed.mp_policy: unknown dtype 'float17'");
  }
}

}  // namespace
}  // namespace automodel::distributed

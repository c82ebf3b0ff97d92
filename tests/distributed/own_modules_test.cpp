// What people do with fully_shard and modules of their own, rightly and wrongly.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "core/error.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/engine/sharded_engine.h"
#include "distributed/sgd_step.h"
#include "distributed/toy_modules.h"
#include "support/errors.h"

namespace automodel::distributed {
namespace {

using comm::expect;
using comm::expect_ranks;
using testing::HasSubstr;

ShardingGroups alone() {
  return ShardingGroups::of(comm::ProcessGroup::solo());
}

/// One block in two places, as weights are shared by module.
struct TwoPlaces final : HookedToy {
  TwoPlaces() {
    block = register_module("first", std::make_shared<ResidualToy>(0.0));
    other = register_module("other", std::make_shared<ResidualToy>(3.0));
    register_module("last", block);
  }
  at::Tensor run(const at::Tensor& x) override {
    return block->forward(other->forward(block->forward(x)));
  }
  std::shared_ptr<ResidualToy> block, other;
};

/// A table of the root's own that another name has too.
struct TwoNames final : HookedToy {
  TwoNames() {
    table = make("head", {6, 6}, 0.1);
    block = register_module("block", std::make_shared<ResidualToy>(1.0));
    register_parameter("embedding", table);
  }
  at::Tensor run(const at::Tensor& x) override {
    return block->forward(x.matmul(table)).matmul(table);
  }
  at::Tensor table;
  std::shared_ptr<ResidualToy> block;
};

at::Tensor loss_of(HookedToy& module, int64_t input) {
  return module.forward(toy_input(input)).pow(2).mean();
}

double norm_of_plain(HookedToy& module) {
  loss_of(module, 0).backward();
  double sum = 0;
  std::set<const at::TensorImpl*> seen;
  for (const at::Tensor& parameter : module.parameters()) {
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    sum += parameter.grad().pow(2).sum().item<double>();
  }
  return std::sqrt(sum);
}

std::vector<std::string> names_of(const std::vector<tensor::FlatShard>& shards) {
  std::vector<std::string> names;
  for (const tensor::FlatShard& shard : shards) {
    for (const tensor::FlatSegment& segment : shard.segments) names.push_back(segment.fqn);
  }
  return names;
}

TEST(OwnModules, AModuleInTwoPlacesIsOneUnit) {
  TwoPlaces plain;
  const double norm = norm_of_plain(plain);
  TwoPlaces net;
  fully_shard(*net.block, alone());
  fully_shard(*net.other, alone());
  FSDPModule& root = fully_shard(net, alone());
  EXPECT_EQ(root.tree_units().size(), 3U);
  EXPECT_EQ(fsdp_module(*net.block)->name(), "first");
  ShardedEngine engine(net);
  EXPECT_EQ(engine.num_parameters(), 2 * 65);
  EXPECT_THAT(names_of(engine.parameters()),
              testing::ElementsAre("first.in", "first.bias", "first.out", "other.in", "other.bias",
                                   "other.out"));
  loss_of(net, 0).backward();
  EXPECT_NEAR(engine.gradient_norm(), norm, 1e-6 * norm);
}

TEST(OwnModules, AParameterWithTwoNamesIsTrainedAndSavedOnce) {
  TwoNames plain;
  const double norm = norm_of_plain(plain);
  const std::vector<std::string> names = {"head", "block.in", "block.bias", "block.out"};
  TwoNames replica;
  DataParallel engine(replica, {}, own_names(replica), comm::ProcessGroup::solo(), {});
  EXPECT_THAT(names_of(engine.parameters()), testing::UnorderedElementsAreArray(names));
  engine.begin_micro_batch(true);
  loss_of(replica, 0).backward();
  engine.end_micro_batch();
  engine.reduce_gradients();
  EXPECT_NEAR(engine.gradient_norm(), norm, 1e-6 * norm);
  for (const tensor::FlatShard& shard : engine.parameters()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      if (segment.fqn != "head") continue;
      EXPECT_EQ(shard.view(segment).data_ptr(), replica.table.data_ptr());
    }
  }
  TwoNames net;
  fully_shard(*net.block, alone());
  fully_shard(net, alone());
  EXPECT_THAT(names_of(ShardedEngine(net).parameters()), testing::UnorderedElementsAreArray(names));
}

TEST(OwnModules, AChildBehindItsParentIsRefusedHoweverTheParentIsHeld) {
  const auto expect_refused = [](ToyNet& net) {
    EXPECT_THAT(test::error_of<UserError>([&] { fully_shard(*net.blocks()[0], alone()); }),
                HasSubstr(" is sharded already, by a unit or an engine"));
  };
  ToyNet kept;
  fully_shard(kept, alone(), {.parameters = Placement::kReplicated});
  expect_refused(kept);
  ToyNet gathered;
  fully_shard(gathered, alone());
  unshard_fsdp2_model(gathered, [&] { expect_refused(gathered); });
  ToyNet replica;
  {
    const DataParallel engine(replica, {}, own_names(replica), comm::ProcessGroup::solo(), {});
    expect_refused(replica);
  }
  EXPECT_NO_THROW(fully_shard(*replica.blocks()[0], alone()));  // the engine is gone
}

/// Steps of SGD behind a first one whose backward throws, of which nothing may be left.
std::vector<at::Tensor> weights_behind(bool has_failure, const ShardingOptions& options) {
  ToyNet net;
  shard_toy(net, comm::ProcessGroup::solo(), options);
  ShardedEngine engine(net);
  if (has_failure) {
    at::Tensor x = toy_input(5).requires_grad_();
    const at::Tensor hidden = x * 1;
    hidden.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("boom"); });
    const at::Tensor loss = net.loss(hidden);
    EXPECT_ANY_THROW(loss.backward());
    engine.zero_gradients();
  }
  for (int step = 0; step < 3; ++step) {
    net.loss(toy_input(step)).backward();
    sgd_step(engine);
  }
  std::vector<at::Tensor> weights;
  for (const tensor::FlatShard& shard : engine.trained()) weights.push_back(shard.buffer.clone());
  return weights;
}

TEST(OwnModules, ABackwardThatThrewLeavesNothingBehind) {
  for (const Placement gradients : {Placement::kSharded, Placement::kReplicated}) {
    const ShardingOptions options{.gradients = gradients};
    const std::vector<at::Tensor> wanted = weights_behind(false, options);
    const std::vector<at::Tensor> found = weights_behind(true, options);
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(at::equal(found[i], wanted[i])) << i;
  }
}

TEST(OwnModules, FreezingBehindFullyShardIsAnError) {
  ToyNet net;
  shard_toy(net, comm::ProcessGroup::solo());
  net.blocks()[1]->named_parameters()["bias"].requires_grad_(false);
  EXPECT_THAT(test::error_of<UserError>([&] { net.loss(toy_input(0)); }),
              HasSubstr("was frozen after fully_shard, which settles that"));
  const at::NoGradGuard no_grad;
  EXPECT_NO_THROW(net.loss(toy_input(0)));
}

TEST(OwnModules, UnitsMayGoInAnyOrder) {
  auto net = std::make_shared<ToyNet>();
  shard_toy(*net, comm::ProcessGroup::solo());
  const std::vector<std::shared_ptr<ResidualToy>> blocks = net->blocks();
  net.reset();  // the root goes before its blocks
  blocks[0]->forward(toy_input(0)).sum().backward();
  TwoPlaces other;
  fully_shard(*other.other, alone());
  fully_shard(other, alone());
  other.other = std::make_shared<ResidualToy>(3.0);
  other.replace_module("other", other.other);  // a unit goes before its root
  loss_of(other, 0).backward();
  EXPECT_EQ(fsdp_module(other)->tree_units().size(), 1U);
}

TEST(OwnModules, AnEngineIsMadeOfTheWholeAndReadBehindABackward) {
  ToyNet net;
  shard_toy(net, comm::ProcessGroup::solo());
  EXPECT_THAT(test::error_of<UserError>([&] { ShardedEngine engine(*net.blocks()[1]); }),
              HasSubstr(" is the unit layers.1 of a larger module"));
  ShardedEngine engine(net);
  EXPECT_THAT(test::error_of<UserError>([&] { engine.gradient_norm(); }),
              HasSubstr("gradients have memory only from backward until they are set to zero"));
}

TEST(OwnModules, GroupsThatDoNotFitAreRefused) {
  expect_ranks(2, [](comm::World& world) {
    const auto solo = comm::ProcessGroup::solo();
    ToyNet net;
    const std::string uneven = test::error_of<UserError>([&] {
      fully_shard(*net.blocks()[0], {world.group(), solo, solo});
    });
    expect(uneven.find("`all` has 2 ranks, `shard` 1 and `replicate` 1") != std::string::npos,
           uneven);
    fully_shard(*net.blocks()[0], ShardingGroups::of(world.group()));
    const std::string other = test::error_of<UserError>([&] {
      fully_shard(net, {world.group(), solo, world.group()});
    });
    expect(other.find("of unit layers.0 are 2 x 1, those of ") != std::string::npos, other);
  });
}

TEST(OwnModules, RanksWithOtherModelsAreNamed) {
  expect_ranks(2, [](comm::World& world) {
    ToyNet net(2);
    if (world.group().rank() == 1)
      net.blocks()[1]->named_parameters()["bias"].requires_grad_(false);
    shard_toy(net, world.group());
    const std::string text = test::error_of<UserError>([&] { ShardedEngine engine(net); });
    expect(text.find("rank 1 has another model (its parameters' names, sizes, or which are "
                     "trained) than rank 0") != std::string::npos,
           text);
  });
}

}  // namespace
}  // namespace automodel::distributed

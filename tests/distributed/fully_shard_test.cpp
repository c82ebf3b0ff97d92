#include "distributed/fsdp/fully_shard.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "core/error.h"
#include "distributed/engine/sharded_engine.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/memory_ledger.h"
#include "distributed/toy_modules.h"
#include "kernels/layers/norm.h"
#include "kernels/products/linear.h"
#include "support/errors.h"

namespace automodel::distributed {
namespace {

using Texts = std::vector<std::string>;

comm::ProcessGroup alone() {
  return comm::ProcessGroup::solo();
}

/// fqn -> gradient of a plain module after the inputs 0 to n - 1.
std::map<std::string, at::Tensor> plain_gradients(int num_inputs) {
  ToyNet net;
  for (int i = 0; i < num_inputs; ++i) net.loss(toy_input(i)).backward();
  std::map<std::string, at::Tensor> gradients;
  for (const auto& item : net.named_parameters()) gradients[item.key()] = item.value().grad();
  return gradients;
}

void expect_gradients(const ShardedEngine& engine,
                      const std::map<std::string, at::Tensor>& wanted) {
  size_t found = 0;
  for (const tensor::FlatShard& shard : engine.gradients()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      const at::Tensor gradient = shard.view(segment);
      EXPECT_TRUE(at::allclose(gradient, wanted.at(segment.fqn).flatten(), 1e-6, 1e-7))
          << segment.fqn;
      ++found;
    }
  }
  EXPECT_EQ(found, wanted.size());
}

TEST(FullyShardTest, KeepsTheValuesOfAUsersModule) {
  ToyNet plain;
  ToyNet net;
  shard_toy(net, alone());
  const at::Tensor wanted = plain.forward(toy_input(0));
  EXPECT_TRUE(at::equal(net.forward(toy_input(0)), wanted));
}

TEST(FullyShardTest, GivesTheGradientsOfThePlainModule) {
  ToyNet net;
  shard_toy(net, alone());
  const ShardedEngine engine(net);
  net.loss(toy_input(0)).backward();
  expect_gradients(engine, plain_gradients(1));
}

TEST(FullyShardTest, ASecondCallMakesNoSecondUnit) {
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone());
  EXPECT_EQ(&fully_shard(net, ShardingGroups::of(alone())), &root);
  EXPECT_EQ(root.tree_units().size(), 4u);
  EXPECT_EQ(fsdp_module(net), &root);
  EXPECT_EQ(fsdp_module(*net.blocks()[1])->name(), "layers.1");
}

TEST(FullyShardTest, UnitsHoldWhatNoUnitBelowHolds) {
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone());
  ASSERT_EQ(root.parameters().size(), 1u);
  EXPECT_EQ(root.parameters()[0].numel, 6);
  EXPECT_EQ(fsdp_module(*net.blocks()[0])->parameters()[0].numel, 30 + 5 + 30);
}

/// A module whose forward goes through no hook.
struct Unhooked : torch::nn::Module {
  Unhooked() : torch::nn::Module("Unhooked") { register_parameter("weight", at::ones({3})); }
};

TEST(FullyShardTest, AModuleWithoutAHookIsRefused) {
  Unhooked module;
  EXPECT_EQ(test::error_of<UserError>([&] { fully_shard(module, ShardingGroups::of(alone())); }),
            "fully_shard: Unhooked has no unit hook: derive it from nn::HookedModule and send its "
            "forward through an nn::UnitHook");
}

TEST(FullyShardTest, ReadingAShardedParameterSaysWhatToDo) {
  ToyNet net(1);
  FSDPModule& root = shard_toy(net, alone());
  const at::Tensor scale = net.named_parameters()["scale"];
  try {
    scale.sum();
    FAIL() << "read";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what_without_backtrace())
                  .find("its forward must go through its unit hook, or call unshard() first"),
              std::string::npos)
        << error.what_without_backtrace();
  }
  root.unshard();
  EXPECT_EQ(scale.numel(), 6);
  EXPECT_GT(scale.abs().sum().item<double>(), 0);
  root.reshard();
  EXPECT_THROW(scale.sum(), c10::Error);
}

/// Two blocks that share a parameter.
struct Tied final : HookedToy {
  Tied() {
    block = register_module("block", std::make_shared<ResidualToy>(0.0));
    register_parameter("tied", block->named_parameters()["bias"]);
  }
  at::Tensor run(const at::Tensor& x) override { return block->forward(x); }
  std::shared_ptr<ResidualToy> block;
};

TEST(FullyShardTest, AParameterSharedAcrossUnitsIsRefusedAndWithinOneIsTakenOnce) {
  Tied split;
  fully_shard(*split.block, ShardingGroups::of(alone()));
  const std::string text =
      test::error_of<UserError>([&] { fully_shard(split, ShardingGroups::of(alone())); });
  EXPECT_NE(text.find("parameter tied of "), std::string::npos) << text;
  EXPECT_NE(text.find(" is shared with a unit below it; make both part of one unit"),
            std::string::npos)
      << text;
  Tied joint;
  EXPECT_EQ(fully_shard(joint, ShardingGroups::of(alone())).parameters()[0].numel, 65);
}

/// x, normed.
struct Normed final : HookedToy {
  Normed() { weight_ = make("weight", {6}, 0.2); }
  at::Tensor run(const at::Tensor& x) override {
    return kernels::rms_norm(x.mul(2), weight_, {.eps = 1e-6});
  }
  at::Tensor weight_;
};

/// The product of a normed input and a head of its own.
struct NormedThenMultiplied final : HookedToy {
  NormedThenMultiplied() {
    head_ = make("head", {5, 6}, 0.4);
    norm = register_module("norm", std::make_shared<Normed>());
  }
  at::Tensor run(const at::Tensor& x) override {
    return kernels::linear(norm->forward(x), head_, {});
  }
  at::Tensor head_;
  std::shared_ptr<Normed> norm;
};

/// The product's backward runs before the unit below is gathered for its own.
TEST(FullyShardTest, AProductMayTakeTheNormThatAUnitEndsWith) {
  NormedThenMultiplied plain;
  plain.forward(toy_input(0)).pow(2).mean().backward();
  std::map<std::string, at::Tensor> wanted;
  for (const auto& item : plain.named_parameters()) wanted[item.key()] = item.value().grad();
  NormedThenMultiplied sharded;
  fully_shard(*sharded.norm, ShardingGroups::of(alone()));
  fully_shard(sharded, ShardingGroups::of(alone()));
  const ShardedEngine engine(sharded);
  sharded.forward(toy_input(0)).pow(2).mean().backward();
  expect_gradients(engine, wanted);
}

TEST(FullyShardTest, AUnitsLifeInAStep) {
  ToyNet net(2);
  FSDPModule& root = shard_toy(net, alone());
  root.clear_events();
  net.loss(toy_input(0)).backward();
  EXPECT_EQ(
      take_events(root),
      (Texts{"gather root",        "unsharded root",     "forward root",       "gather layers.0",
             "unsharded layers.0", "forward layers.0",   "reshard layers.0",   "gather layers.1",
             "unsharded layers.1", "forward layers.1",   "reshard layers.1",   "backward root",
             "gather layers.1",    "unsharded layers.1", "backward layers.1",  "reshard layers.1",
             "reduce layers.1",    "gather layers.0",    "unsharded layers.0", "backward layers.0",
             "reshard layers.0",   "reduced layers.1",   "reduce layers.0",    "reshard root",
             "reduced layers.0",   "reduce root",        "reduced root"}));
}

TEST(FullyShardTest, MicroBatchesWithoutSyncAddUpAndReduceOnce) {
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone());
  const ShardedEngine engine(net);
  for (int i = 0; i < 3; ++i) {
    root.set_requires_gradient_sync(i == 2);
    root.set_is_last_backward(i == 2);
    net.loss(toy_input(i)).backward();
  }
  expect_gradients(engine, plain_gradients(3));
  EXPECT_EQ(root.counts().reductions, 4);
}

TEST(FullyShardTest, MicroBatchesInBfloat16AddUpInTheDtypeOfTheReduction) {
  ShardingOptions options;
  options.param_dtype = at::kBFloat16;
  options.reduce_dtype = at::kFloat;
  options.casts_inputs = true;
  ToyNet one;
  shard_toy(one, alone(), options);
  const ShardedEngine summed(one);
  ToyNet other;
  FSDPModule& root = shard_toy(other, alone(), options);
  const ShardedEngine deferred(other);
  for (int i = 0; i < 3; ++i) {
    one.loss(toy_input(i)).backward();  // reduced every time, into float32
    root.set_requires_gradient_sync(i == 2);
    other.loss(toy_input(i)).backward();
  }
  for (size_t i = 0; i < summed.gradients().size(); ++i) {
    EXPECT_TRUE(
        at::allclose(deferred.gradients()[i].buffer, summed.gradients()[i].buffer, 1e-6, 1e-7));
  }
}

TEST(FullyShardTest, KeptUnitsStayGatheredUntilTheSwitchIsBack) {
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone());
  root.set_is_last_backward(false);
  root.set_reshard_after_backward(false);
  root.set_requires_gradient_sync(false);
  net.loss(toy_input(0)).backward();
  for (const FSDPModule* unit : root.tree_units()) EXPECT_TRUE(unit->is_unsharded());
  EXPECT_EQ(root.counts().reductions, 0);
  root.set_is_last_backward(true);
  root.set_reshard_after_backward(true);
  root.set_requires_gradient_sync(true);
  net.loss(toy_input(1)).backward();
  for (const FSDPModule* unit : root.tree_units()) EXPECT_FALSE(unit->is_unsharded());
  EXPECT_EQ(root.counts().reductions, 4);
  const ShardedEngine engine(net);
  expect_gradients(engine, plain_gradients(2));
}

TEST(FullyShardTest, SeveralForwardsBeforeOneBackward) {
  ToyNet net;
  shard_toy(net, alone());
  const ShardedEngine engine(net);
  const at::Tensor first = net.loss(toy_input(0));
  const at::Tensor second = net.loss(toy_input(1));
  (first + second).backward();
  expect_gradients(engine, plain_gradients(2));
}

TEST(FullyShardTest, AForwardWithoutGradientsLeavesNothingGathered) {
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone());
  const at::NoGradGuard no_grad;
  net.forward(toy_input(0));
  for (const FSDPModule* unit : root.tree_units()) EXPECT_FALSE(unit->is_unsharded());
}

TEST(FullyShardTest, FrozenParametersAreGatheredAndNotReduced) {
  ToyNet net;
  for (const auto& item : net.blocks()[0]->named_parameters())
    item.value().set_requires_grad(false);
  FSDPModule& root = shard_toy(net, alone());
  const ShardedEngine engine(net);
  net.loss(toy_input(0)).backward();
  auto wanted = plain_gradients(1);
  for (const char* name : {"in", "bias", "out"}) wanted.erase(cat("layers.0.", name));
  expect_gradients(engine, wanted);
  EXPECT_EQ(root.counts().reductions, 3);
  EXPECT_EQ(engine.num_parameters() - engine.num_trained_parameters(), 65);
}

TEST(FullyShardTest, UnitsOfSeveralDtypesHaveABufferEach) {
  ToyNet net(1);
  at::Tensor bias = net.blocks()[0]->named_parameters()["bias"];
  bias.set_data(bias.to(at::kDouble));
  FSDPModule& root = shard_toy(net, alone());
  EXPECT_EQ(root.tree_units()[1]->parameters().size(), 2u);
}

TEST(FullyShardTest, ExplicitPrefetchGathersTheNextUnitsBeforeAUnitRuns) {
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone());
  const auto unit = [&](size_t i) { return fsdp_module(*net.blocks()[i]); };
  unit(0)->set_modules_to_forward_prefetch({unit(1), unit(2)});
  unit(2)->set_modules_to_backward_prefetch({unit(1)});
  root.clear_events();
  net.loss(toy_input(0)).backward();
  EXPECT_EQ(only(take_events(root), {"gather", "forward", "backward"}),
            (Texts{"gather root", "forward root", "gather layers.0", "gather layers.1",
                   "gather layers.2", "forward layers.0", "forward layers.1", "forward layers.2",
                   "backward root", "gather layers.2", "gather layers.1", "backward layers.2",
                   "backward layers.1", "gather layers.0", "backward layers.0"}));
}

TEST(FullyShardTest, ImplicitPrefetchFollowsTheReverseOfForward) {
  ShardingOptions options;
  options.prefetches_implicitly = true;
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone(), options);
  root.clear_events();
  net.loss(toy_input(0)).backward();
  const Texts events = only(take_events(root), {"gather", "backward"});
  EXPECT_EQ(Texts(events.begin() + 4, events.end()),
            (Texts{"gather layers.2", "backward root", "gather layers.1", "backward layers.2",
                   "gather layers.0", "backward layers.1", "backward layers.0"}));
}

TEST(FullyShardTest, ReleasedBuffersAreTensorsMemoryAgain) {
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone());
  ShardedEngine engine(net);
  const test::MemoryLedger ledger;
  const auto step = [&] {
    net.loss(toy_input(0)).backward();
    engine.zero_gradients();
  };
  step();
  EXPECT_EQ(ledger.held(), 0);
  const int64_t one = ledger.peak();
  EXPECT_GE(one, root.resting_bytes());  // the blocks' parameters and gradients came from it
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(ledger.held(), 0);
  EXPECT_EQ(ledger.peak(), one);
}

TEST(FullyShardTest, NothingIsCopiedBesideTheCollectivesInOneDtype) {
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone());
  ShardedEngine engine(net);
  for (int i = 0; i < 2; ++i) {
    net.loss(toy_input(i)).backward();
    engine.zero_gradients();
  }
  EXPECT_EQ(root.counts().copied_bytes, 0);
}

TEST(UnshardFsdp2Model, ParametersAreReadableInsideAndShardedAfter) {
  ToyNet plain;
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone());
  unshard_fsdp2_model(net, [&] {
    for (const auto& item : net.named_parameters()) {
      EXPECT_TRUE(at::equal(item.value(), plain.named_parameters()[item.key()])) << item.key();
    }
  });
  for (const FSDPModule* unit : root.tree_units()) EXPECT_FALSE(unit->is_unsharded());
}

TEST(FullyShardTest, AParameterHasOneOwner) {
  const std::string sharded =
      " is sharded already, by a unit or an engine: call fully_shard on blocks first and on the "
      "whole module last, once each, and give a parameter that two modules share to one unit";
  ToyNet net;
  fully_shard(net, ShardingGroups::of(alone()));
  const std::string late = test::error_of<UserError>(
      [&] { fully_shard(*net.blocks()[0], ShardingGroups::of(alone())); });
  EXPECT_TRUE(late.ends_with(sharded)) << late;
}

TEST(FullyShardTest, ZeroGradOfTheModuleTakesNothingOff) {
  const auto norms_of = [](bool takes_off) {
    ToyNet net;
    FSDPModule& root = shard_toy(net, alone());
    ShardedEngine engine(net);
    std::vector<double> norms;
    for (int i = 0; i < 2; ++i) {
      if (takes_off) net.zero_grad();
      net.loss(toy_input(i)).backward();
      norms.push_back(engine.gradient_norm());
      engine.zero_gradients();
    }
    EXPECT_EQ(root.counts().reductions, 2 * std::ssize(root.tree_units()));
    return norms;
  };
  EXPECT_EQ(norms_of(true), norms_of(false));
}

TEST(FullyShardTest, WhatIsNoUnitIsNotPrefetched) {
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone());
  const std::string text = "a module to prefetch is no unit: call fully_shard on it first";
  EXPECT_EQ(test::error_of<UserError>([&] { root.set_modules_to_forward_prefetch({nullptr}); }),
            text);
  EXPECT_EQ(test::error_of<UserError>([&] { root.set_modules_to_backward_prefetch({nullptr}); }),
            text);
}

TEST(UnshardFsdp2Model, BackwardsInItFreeNothing) {
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone());
  unshard_fsdp2_model(net, [&] {
    net.loss(toy_input(0)).backward();
    for (const FSDPModule* unit : root.tree_units()) EXPECT_TRUE(unit->is_unsharded());
  });
  for (const FSDPModule* unit : root.tree_units()) EXPECT_FALSE(unit->is_unsharded());
}

TEST(UnshardFsdp2Model, ForwardsInItGatherNothing) {
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone());
  const auto gathers_of_two_forwards = [&] {
    at::NoGradGuard no_grad;
    const int64_t before = root.counts().gathers;
    for (int i = 0; i < 2; ++i) net.loss(toy_input(i));
    return root.counts().gathers - before;
  };
  const auto num_units = static_cast<int64_t>(root.tree_units().size());
  EXPECT_EQ(gathers_of_two_forwards(), 2 * num_units);
  unshard_fsdp2_model(net, [&] { EXPECT_EQ(gathers_of_two_forwards(), 0); });
  EXPECT_EQ(gathers_of_two_forwards(), 2 * num_units);
}

TEST(UnshardFsdp2Model, UnitsMayAllStayAfterTheirForward) {
  for (const bool reshards : {true, false}) {
    ToyNet net;
    shard_toy(net, alone(), {.reshard_after_forward = reshards});
    EXPECT_EQ(all_keep_after_forward(net), !reshards);
  }
  EXPECT_FALSE(all_keep_after_forward(Unhooked()));
}

TEST(UnshardFsdp2Model, AnExceptionGoesOnAndReshards) {
  ToyNet net;
  FSDPModule& root = shard_toy(net, alone());
  EXPECT_EQ(test::error_of<UserError>(
                [&] { unshard_fsdp2_model(net, [] { throw UserError("out of logits"); }); }),
            "out of logits");
  for (const FSDPModule* unit : root.tree_units()) EXPECT_FALSE(unit->is_unsharded());
}

TEST(UnshardFsdp2Model, OtherModulesAreLeftAlone) {
  Unhooked module;
  bool is_run = false;
  unshard_fsdp2_model(module, [&] { is_run = true; });
  EXPECT_TRUE(is_run);
}

Texts resharding_units(ToyNet& net, const ShardingOptions& options = {}) {
  apply_fsdp2_sharding_recursively(net, ShardingGroups::of(alone()), options);
  Texts found;
  for (const auto& block : net.blocks()) {
    const FSDPModule* unit = fsdp_module(*block);
    found.push_back(unit->options().reshard_after_forward == true ? "reshard" : "keep");
  }
  return found;
}

TEST(ApplyFsdp2ShardingRecursively, EveryElementOfAListReshardsButTheLast) {
  ToyNet net;
  EXPECT_EQ(resharding_units(net), (Texts{"reshard", "reshard", "keep"}));
  EXPECT_EQ(fsdp_module(net), nullptr);  // what is in no list is looked into only
}

TEST(ApplyFsdp2ShardingRecursively, ASingleElementIsKept) {
  ToyNet net(1);
  EXPECT_EQ(resharding_units(net), (Texts{"keep"}));
}

TEST(ApplyFsdp2ShardingRecursively, AnEmptyListAndAModuleWithoutChildrenAreNothingToDo) {
  ToyNet net(0);
  EXPECT_EQ(resharding_units(net), Texts{});
  ResidualToy leaf(0.0);
  apply_fsdp2_sharding_recursively(leaf, ShardingGroups::of(alone()), {});
  EXPECT_EQ(fsdp_module(leaf), nullptr);
}

TEST(ApplyFsdp2ShardingRecursively, AnExplicitChoiceHoldsForAll) {
  ShardingOptions options;
  options.reshard_after_forward = true;
  ToyNet net;
  EXPECT_EQ(resharding_units(net, options), (Texts{"reshard", "reshard", "reshard"}));
  options.reshard_after_forward = false;
  ToyNet other;
  EXPECT_EQ(resharding_units(other, options), (Texts{"keep", "keep", "keep"}));
}

TEST(ApplyFsdp2ShardingRecursively, TheLastOfANestedListIsKeptToo) {
  struct Nested : torch::nn::Module {
    Nested() {
      auto outer = register_module("outer", std::make_shared<nn::LayerList>());
      auto inner = outer->register_module("0", std::make_shared<nn::LayerList>());
      a = inner->register_module("0", std::make_shared<ResidualToy>(0.0));
      b = inner->register_module("1", std::make_shared<ResidualToy>(1.0));
      c = outer->register_module("1", std::make_shared<ResidualToy>(2.0));
      d = outer->register_module("2", std::make_shared<ResidualToy>(3.0));
    }
    std::shared_ptr<ResidualToy> a, b, c, d;
  } nested;
  apply_fsdp2_sharding_recursively(nested, ShardingGroups::of(alone()), {});
  Texts found;
  for (const auto& block : {nested.a, nested.b, nested.c, nested.d}) {
    const bool keeps = fsdp_module(*block)->options().reshard_after_forward == false;
    found.push_back(keeps ? "keep" : "reshard");
  }
  EXPECT_EQ(found, (Texts{"reshard", "keep", "reshard", "keep"}));
}

TEST(ApplyFsdp2ShardingRecursively, OptionsReachEveryUnit) {
  ShardingOptions options;
  options.param_dtype = at::kBFloat16;
  options.offload_policy = CPUOffloadPolicy{.pin_memory = false};
  ToyNet net;
  resharding_units(net, options);
  for (const auto& block : net.blocks()) {
    const ShardingOptions& found = fsdp_module(*block)->options();
    EXPECT_EQ(found.param_dtype, at::kBFloat16);
    EXPECT_FALSE(found.offload_policy->pin_memory);
  }
}

}  // namespace
}  // namespace automodel::distributed

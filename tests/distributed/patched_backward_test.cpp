// patched_backward_maybe_with_nosync of upstream's components.moe.fsdp_mixin, by rows of its
// branches.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "distributed/counted_group.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/engine/moe_fsdp_mixin.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/moe_units.h"
#include "distributed/toy_model.h"
#include "support/errors.h"

namespace automodel::distributed {
namespace {

/// The graph of a micro-batch: its input is a leaf, its output's gradient is a wave.
StageGraph graph_of(HookedToy& module, const at::Tensor& x) {
  StageGraph graph;
  graph.input = x.clone().requires_grad_();
  graph.output = module.forward(graph.input);
  graph.output_gradient = at::sin(at::arange(24, at::kFloat) * 0.9).view({4, 6});
  return graph;
}

struct PlainGradients {
  at::Tensor input, weight;
};

/// By autograd alone.
PlainGradients autograd_gradients() {
  LinearToy toy(1.0);
  const StageGraph graph = graph_of(toy, toy_input(1));
  torch::autograd::backward({graph.output}, {graph.output_gradient});
  return {graph.input.grad(), toy.parameters()[0].grad()};
}

TEST(PatchedBackwardTest, FullComputesAllGradientsOfAnyModule) {
  LinearToy toy(1.0);
  const auto [grads, param_groups] =
      patched_backward_maybe_with_nosync({}, "full", {graph_of(toy, toy_input(1))});
  EXPECT_TRUE(at::equal(grads, autograd_gradients().input));
  EXPECT_TRUE(at::equal(toy.parameters()[0].grad(), autograd_gradients().weight));
  EXPECT_FALSE(param_groups.has_value());
}

TEST(PatchedBackwardTest, InputComputesTheInputsGradientAndLeavesTheParameters) {
  LinearToy toy(1.0);
  const auto [grads, param_groups] =
      patched_backward_maybe_with_nosync({}, "input", {graph_of(toy, toy_input(1))});
  EXPECT_TRUE(at::equal(grads, autograd_gradients().input));
  EXPECT_FALSE(toy.parameters()[0].grad().defined());
  EXPECT_TRUE(param_groups.has_value());
}

TEST(PatchedBackwardTest, WeightCompletesTheParametersGradients) {
  LinearToy toy(1.0);
  auto first = patched_backward_maybe_with_nosync({}, "input", {graph_of(toy, toy_input(1))});
  const auto second =
      patched_backward_maybe_with_nosync({}, "weight", {.param_groups = &*first.param_groups});
  EXPECT_FALSE(second.grads.defined());
  EXPECT_FALSE(second.param_groups.has_value());
  EXPECT_TRUE(at::allclose(toy.parameters()[0].grad(), autograd_gradients().weight, 1e-6, 1e-7));
}

TEST(PatchedBackwardTest, OtherTypesAreNamed) {
  EXPECT_EQ(test::error_of<UserError>([&] { patched_backward_maybe_with_nosync({}, "half", {}); }),
            "Unknown backward type: half");
}

/// A toy that is whole on every rank.
struct ReplicatedToy {
  explicit ReplicatedToy(const ProcessGroup& group)
      : toy(1.0), engine(toy, {}, {{"weight", "weight", 0, {6, 6}}}, group, {}) {
    const at::NoGradGuard no_grad;
    toy.parameters()[0].copy_(LinearToy(1.0).parameters()[0]);
  }
  LinearToy toy;
  DataParallel engine;
};

/// Micro-batch i of a stage, in one call or in two.
void run_backward(const BackwardStage& stage, const StageGraph& graph, bool is_split,
                  bool is_last) {
  if (!is_split) {
    patched_backward_maybe_with_nosync(stage, "full", {graph}, is_last);
    return;
  }
  auto first = patched_backward_maybe_with_nosync(stage, "input", {graph});
  patched_backward_maybe_with_nosync(stage, "weight", {.param_groups = &*first.param_groups},
                                     is_last);
}

TEST(PatchedBackwardTest, DdpAllReducesWithTheLastBackwardOnly) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    for (const bool is_split : {false, true}) {
      const CountedGroup counted(group);
      ReplicatedToy replicated(counted.group);
      const BackwardStage stage = replicated.engine.backward_stage();
      for (int i = 0; i < kMicroBatches; ++i) {
        const StageGraph graph = graph_of(replicated.toy, input_of(group, i));
        const bool is_last = i + 1 == kMicroBatches;
        run_backward(stage, graph, is_split, is_last);
        expect((*counted.counts)["all_reduce"].calls == (is_last ? 1 : 0), cat("micro-batch ", i));
      }
      replicated.engine.reduce_gradients();  // waits
      expect((*counted.counts)["all_reduce"].calls == 1, "once a bucket");
      at::Tensor wanted = at::zeros({6, 6});
      for (int i = 0; i < kMicroBatches; ++i) {
        LinearToy toy(1.0);
        const StageGraph graph = graph_of(toy, input_of(group, i));
        torch::autograd::backward({graph.output}, {graph.output_gradient});
        wanted += toy.parameters()[0].grad() / 2;
      }
      group.all_reduce(wanted, comm::ReduceOp::kSum);
      expect_near(replicated.engine.gradients()[0].buffer.narrow(0, 0, 36), wanted.view({-1}),
                  "gradients");
    }
  });
}

/// Buckets of blocks whose backward has ended travel while the one before is differentiated.
TEST(PatchedBackwardTest, DdpAllReducesDuringTheLastBackward) {
  comm::expect_ranks(2, [](comm::World& world) {
    const CountedGroup counted(world.group());
    ToyModel toy;
    DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, counted.group,
                        {.first_bucket_bytes = 320, .bucket_bytes = 320});  // a block each
    for (const bool is_last : {false, true}) {
      StageGraph graph{.input = toy_input(0).requires_grad_()};
      graph.output = toy.net.loss(graph.input);
      int64_t under_way = 0;
      graph.input.register_hook(
          [&](const at::Tensor&) { under_way = (*counted.counts)["all_reduce"].calls; });
      patched_backward_maybe_with_nosync(engine.backward_stage(), "full", {graph}, is_last);
      expect(under_way == (is_last ? 3 : 0), cat(under_way, " buckets while backward runs"));
    }
    expect((*counted.counts)["all_reduce"].calls == 4, "the root's after it");
    engine.reduce_gradients();
    expect((*counted.counts)["all_reduce"].calls == 4, "none again");
  });
}

/// Runs micro-batches through a stage's backward; the last one is `last`.
void run_stage(MoeToy& toy, const BackwardStage& stage, const ProcessGroup& group,
               bool is_split = false) {
  for (int i = 0; i < kMicroBatches; ++i) {
    StageGraph graph = graph_of(toy, input_of(group, i));
    graph.output = graph.output.pow(2).mean();
    graph.output_gradient = at::Tensor();
    run_backward(stage, graph, is_split, i + 1 == kMicroBatches);
  }
}

TEST(PatchedBackwardTest, AnFsdpUnitReducesOnceAUnitAfterTheLastBackward) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor wanted = plain_gradients(group);
    for (const bool is_split : {false, true}) {
      MoeToy toy({.wraps_outer_model = true});
      toy.shard(ShardingGroups::of(group));
      run_stage(toy, {.unit = fsdp_module(toy)}, group, is_split);
      expect(num_reductions(toy) == kNumUnits, cat(num_reductions(toy), " reductions"));
      expect(switches_of(toy) == kOn, "switches after the last");
      expect_near(gradients_of(toy), wanted, "gradients");
    }
  });
}

/// Whichever way: the input's backward has nothing to reduce.
TEST(PatchedBackwardTest, AnFsdpUnitThatReducesEachMicroBatchHasTheSameGradients) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor wanted = plain_gradients(group);
    for (const bool is_split : {false, true}) {
      MoeToy toy({.wraps_outer_model = true});
      toy.shard(ShardingGroups::of(group));
      run_stage(toy, {.unit = fsdp_module(toy), .reduce_grad_per_microbatch = true}, group,
                is_split);
      expect(num_reductions(toy) == kNumUnits * kMicroBatches, cat(num_reductions(toy)));
      expect_near(gradients_of(toy), wanted, "gradients");
    }
  });
}

/// Sums of micro-batches in float32 are taken after each of them, also where only weights are left.
TEST(PatchedBackwardTest, WideSumsAreThoseOfWholeBackwards) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const auto gradients = [&](bool is_split) {
      MoeToy toy({.wraps_outer_model = true});
      toy.shard(ShardingGroups::of(group),
                {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat, .casts_inputs = true});
      run_stage(toy, {.unit = fsdp_module(toy)}, group, is_split);
      return gradients_of(toy);
    };
    expect_near(gradients(true), gradients(false), "gradients");
  });
}

TEST(PatchedBackwardTest, AMoeMixinOfSeveralTreesReducesAllOfThemAfterTheLastBackward) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor wanted = plain_gradients(group);
    for (const bool is_split : {false, true}) {
      MoeToy toy;
      toy.shard(ShardingGroups::of(group));
      // Whatever else the stage is: a mixin defers.
      const BackwardStage stage{.mixin = &toy, .reduce_grad_per_microbatch = true};
      run_backward(stage, graph_of(toy, input_of(group, 0)), is_split, false);
      expect(num_reductions(toy) == 0, "not the last: nothing is reduced");
      expect(switches_of(toy) == kOff, "switches");
      expect(are_all_unsharded(toy), "parameters stay gathered");
      for (const auto& [name, unit] : units_of(toy)) unit->zero_gradients();
      run_stage(toy, stage, group, is_split);
      expect(num_reductions(toy) == kNumUnits, "one reduction a unit");
      expect(switches_of(toy) == kOn, "switches after the last");
      expect_near(gradients_of(toy), wanted, "gradients");
    }
  });
}

/// Two stages behind one another, driven by the patch, against the one model by its hooks.
TEST(PatchedBackwardTest, TwoStagesHaveTheGradientsOfOneModel) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor wanted = plain_gradients(group);
    MoeToy toy;  // stage 0: toy.model, a unit; stage 1: toy.lm_head, another
    toy.shard(ShardingGroups::of(group));
    const BackwardStage first{.unit = fsdp_module(*toy.model)};
    const BackwardStage second{.unit = fsdp_module(*toy.lm_head)};
    for (int i = 0; i < kMicroBatches; ++i) {
      const bool is_last = i + 1 == kMicroBatches;
      StageGraph front{.output = toy.model->forward(input_of(group, i))};
      StageGraph back{.input = front.output.detach().requires_grad_()};
      back.output = toy.lm_head->forward(back.input).pow(2).mean();
      front.output_gradient =
          patched_backward_maybe_with_nosync(second, "full", {back}, is_last).grads;
      patched_backward_maybe_with_nosync(first, "full", {front}, is_last);
    }
    expect(num_reductions(toy) == kNumUnits, "reductions");
    expect_near(gradients_of(toy), wanted, "gradients");
  });
}

}  // namespace
}  // namespace automodel::distributed

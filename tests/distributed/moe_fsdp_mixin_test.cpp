#include "distributed/engine/moe_fsdp_mixin.h"

#include <gtest/gtest.h>

#include "distributed/engine/sharded_engine.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/moe_units.h"

// One test a row of upstream's components.moe.fsdp_mixin, named after the row.

namespace automodel::distributed {
namespace {

// ---- MoEFSDPSyncMixin ---------------------------------------------------------------------------

TEST(MoEFSDPSyncMixinTest, AStepReducesOnceAUnitAndHasTheGradientsOfReducingEachMicroBatch) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor wanted = plain_gradients(group);
    for (const bool wraps_outer_model : {false, true}) {
      MoeToy toy({.wraps_outer_model = wraps_outer_model});
      toy.shard(ShardingGroups::of(group));
      toy.prepare_for_grad_accumulation();
      for (int i = 0; i < kMicroBatches; ++i) {
        if (i + 1 == kMicroBatches) toy.prepare_for_final_backward();
        toy.loss(input_of(group, i)).backward();
      }
      expect(num_reductions(toy) == kNumUnits, "reductions of a step");
      expect_near(gradients_of(toy), wanted, "gradients");
    }
  });
}

TEST(MoEFSDPSyncMixinTest, IsFoundByItsType) {
  const std::shared_ptr<torch::nn::Module> toy = std::make_shared<MoeToy>();
  const std::shared_ptr<torch::nn::Module> other = std::make_shared<LinearToy>(1.0);
  EXPECT_NE(dynamic_cast<MoEFSDPSyncMixin*>(toy.get()), nullptr);
  EXPECT_EQ(dynamic_cast<MoEFSDPSyncMixin*>(other.get()), nullptr);
}

TEST(MoEFSDPSyncMixinTest, PrepareForGradAccumulationLeavesUnitsAloneWhenTheModelSaysSo) {
  MoeToy toy({.enables_optimizations = false});
  toy.shard(ShardingGroups::of(solo()));
  toy.prepare_for_grad_accumulation();
  EXPECT_EQ(switches_of(toy), kOn);
}

TEST(MoEFSDPSyncMixinTest, PrepareForGradAccumulationDoesNotConsultItsArgument) {
  for (const bool pp_enabled : {false, true}) {
    MoeToy toy({.wraps_outer_model = true});
    toy.shard(ShardingGroups::of(solo()));
    toy.prepare_for_grad_accumulation(pp_enabled);
    EXPECT_EQ(switches_of(toy), kOff);
    toy.prepare_for_final_backward(pp_enabled);
    EXPECT_EQ(switches_of(toy), kOn);
  }
}

TEST(MoEFSDPSyncMixinTest, PrepareForGradAccumulationDefersSyncAndResharding) {
  comm::expect_ranks(2, [](comm::World& world) {
    MoeToy toy;
    toy.shard(ShardingGroups::of(world.group()));
    const int64_t sharded = resting_bytes(toy);
    toy.prepare_for_grad_accumulation();
    toy.loss(input_of(world.group(), 0)).backward();
    expect(num_reductions(toy) == 0, "no reduction");
    expect(are_all_unsharded(toy), "parameters stay gathered");
    // Whole parameters and whole gradients lie beside half of the parameters; no reduced ones do.
    expect(resting_bytes(toy) == 5 * sharded, cat(resting_bytes(toy), " bytes rest"));
  });
}

TEST(MoEFSDPSyncMixinTest, PrepareForFinalBackwardLeavesUnitsAloneWhenTheModelSaysSo) {
  MoeToy toy({.enables_optimizations = false});
  toy.shard(ShardingGroups::of(solo()));
  disable_fsdp_for_moe_module(toy);
  toy.prepare_for_final_backward();
  EXPECT_EQ(switches_of(toy), kOff);
}

TEST(MoEFSDPSyncMixinTest, PrepareForFinalBackwardReducesAndFreesInTheNextBackward) {
  comm::expect_ranks(2, [](comm::World& world) {
    MoeToy toy;
    toy.shard(ShardingGroups::of(world.group()));
    const int64_t sharded = resting_bytes(toy);
    toy.prepare_for_grad_accumulation();
    toy.loss(input_of(world.group(), 0)).backward();
    toy.prepare_for_final_backward();
    toy.loss(input_of(world.group(), 1)).backward();
    expect(num_reductions(toy) == kNumUnits, "one reduction a unit");
    // This rank's half of the parameters and, reduced, of the gradients.
    expect(resting_bytes(toy) == 2 * sharded, cat(resting_bytes(toy), " bytes rest"));
  });
}

/// Steps one behind another begin anew, and k micro-batches are one k times as large.
TEST(MoEFSDPSyncMixinTest, WorkflowCyclesAndAddsUpToOneLargeBatch) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    MoeToy large;
    large.shard(ShardingGroups::of(group));
    std::vector<at::Tensor> inputs;
    for (int i = 0; i < kMicroBatches; ++i) inputs.push_back(input_of(group, i));
    (large.loss(at::cat(inputs)) * kMicroBatches).backward();
    const at::Tensor wanted = gradients_of(large);
    MoeToy toy;
    toy.shard(ShardingGroups::of(group));
    for (int step = 0; step < 2; ++step) {
      toy.prepare_for_grad_accumulation();
      for (int i = 0; i < kMicroBatches; ++i) {
        if (i + 1 == kMicroBatches) toy.prepare_for_final_backward();
        toy.loss(inputs[static_cast<size_t>(i)]).backward();
      }
      expect_near(gradients_of(toy), wanted, cat("gradients of step ", step));
      for (const auto& [name, unit] : units_of(toy)) unit->zero_gradients();
    }
  });
}

/// The engine of a recipe drives the same switches around its micro-batches.
TEST(MoEFSDPSyncMixinTest, AnEngineThatKeepsGathersAndReducesOnceAStep) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const auto step = [&](bool keeps) {
      MoeToy toy({.wraps_outer_model = true});
      toy.shard(ShardingGroups::of(group), {.reshard_after_forward = false});
      ShardedEngine engine(toy);
      if (keeps) engine.keep_between_micro_batches();
      for (int i = 0; i < kMicroBatches; ++i) {
        engine.begin_micro_batch(i + 1 == kMicroBatches);
        toy.loss(input_of(group, i)).backward();
        engine.end_micro_batch();
      }
      engine.reduce_gradients();
      expect(engine.counts().reductions == kNumUnits, "one reduction a unit");
      const int64_t gathers = engine.counts().gathers;
      expect(gathers == (keeps ? 1 : kMicroBatches) * kNumUnits, cat(gathers, " gathers"));
      return gradients_of(toy);
    };
    expect_near(step(true), step(false), "gradients");
  });
}

// ---- _configure_fsdp_module, _iter_fsdp_modules, _disable_fsdp_for_moe_module
// ---------------------

struct RecordedUnit {
  Names calls;
  void set_is_last_backward(bool value) { calls.push_back(cat("last ", value)); }
  void set_reshard_after_backward(bool value) { calls.push_back(cat("reshard ", value)); }
  void set_requires_gradient_sync(bool value) { calls.push_back(cat("sync ", value)); }
};

TEST(ConfigureFsdpModuleTest, CallsTheThreeSettersInOrder) {
  RecordedUnit unit;
  configure_fsdp_module(unit, kDeferredBackward);
  configure_fsdp_module(unit, kFinalBackward);
  configure_fsdp_module(
      unit,
      {.is_last_backward = true, .reshard_after_backward = false, .requires_gradient_sync = true});
  const std::string t = cat(true), f = cat(false);
  EXPECT_EQ(unit.calls,
            (Names{"last " + f, "reshard " + f, "sync " + f, "last " + t, "reshard " + t,
                   "sync " + t, "last " + t, "reshard " + f, "sync " + t}));
}

TEST(IterFsdpModulesTest, GivesModelEmbeddingHeadAndExpertsInThisOrder) {
  MoeToy toy;
  toy.shard(ShardingGroups::of(solo()));
  EXPECT_EQ(iterated(toy), (Names{"model", "model.embed_tokens", "lm_head",
                                  "model.layers.0.mlp.experts", "model.layers.1.moe.experts"}));
}

TEST(IterFsdpModulesTest, GivesOnlyWhatIsAUnit) {
  MoeToy toy;
  fully_shard(*toy.model, ShardingGroups::of(solo()));
  EXPECT_EQ(iterated(toy), Names{"model"});
  fully_shard(*toy.lm_head, ShardingGroups::of(solo()));
  EXPECT_EQ(iterated(toy), (Names{"model", "lm_head"}));
  MoeToy bare;
  EXPECT_EQ(iterated(bare), Names{});
}

TEST(IterFsdpModulesTest, AModuleWithoutAModelIsItsOwn) {
  MoeInnerToy inner;
  for (const auto& block : inner.blocks) fully_shard(block->experts(), ShardingGroups::of(solo()));
  fully_shard(*inner.embed_tokens, ShardingGroups::of(solo()));
  EXPECT_EQ(iterated(inner),
            (Names{"embed_tokens", "layers.0.mlp.experts", "layers.1.moe.experts"}));
}

TEST(IterFsdpModulesTest, GivesTheOuterRootFirst) {
  MoeToy toy({.wraps_outer_model = true});
  toy.shard(ShardingGroups::of(solo()));
  EXPECT_EQ(iterated(toy)[0], "(outer)");
  EXPECT_EQ(iterated(toy)[1], "model");
  EXPECT_EQ(iterated(toy).size(), 6u);
}

TEST(IterFsdpModulesTest, GivesTowersWithTheUnitsBelowThem) {
  MoeToy toy({.has_towers = true});
  toy.shard(ShardingGroups::of(solo()));
  EXPECT_EQ(iterated(toy),
            (Names{"model", "model.embed_tokens", "lm_head", "audio_tower", "visual.experts",
                   "model.layers.0.mlp.experts", "model.layers.1.moe.experts"}));
}

TEST(IterFsdpModulesTest, GivesTheBlocksAndExpertsOfMtpLast) {
  MoeToy toy({.has_mtp = true});
  toy.shard(ShardingGroups::of(solo()));
  const Names names = iterated(toy);
  EXPECT_EQ(Names(names.end() - 4, names.end()),
            (Names{"mtp.layers.0", "mtp.layers.0.mlp.experts", "mtp.layers.1",
                   "mtp.layers.1.moe.experts"}));
}

TEST(DisableFsdpForMoeModuleTest, TurnsAllThreeSwitchesOfEveryUnitOff) {
  MoeToy toy({.has_towers = true, .has_mtp = true});
  toy.shard(ShardingGroups::of(solo()));
  disable_fsdp_for_moe_module(toy);
  EXPECT_EQ(switches_of(toy), kOff);
}

// ---- _run_post_backward_hooks, _run_post_backward_for_moe_module
// ----------------------------------

TEST(RunPostBackwardHooksTest, ReducesEveryUnitOfTheTreeAndLeavesTheEndToTheCaller) {
  comm::expect_ranks(2, [](comm::World& world) {
    MoeToy toy;
    toy.shard(ShardingGroups::of(world.group()));
    disable_fsdp_for_moe_module(toy);
    toy.loss(input_of(world.group(), 0)).backward();
    FSDPModule& model = *fsdp_module(*toy.model);
    configure_fsdp_module(model, kFinalBackward);
    take_events(model);
    const auto end = run_post_backward_hooks(model);
    expect(only(take_events(model), {"reduce"}).size() == 6, "every unit below begins to reduce");
    // One is under way until the tree's backward ends.
    expect(model.counts().reductions == 5, cat(model.counts().reductions, " reductions"));
    end();
    expect(model.counts().reductions == 6, "the last one");
    expect(num_reductions(toy) == 6, "lm_head is another tree");
    run_post_backward_hooks(model)();
    expect(model.counts().reductions == 6, "nothing is left to reduce");
  });
}

TEST(RunPostBackwardForMoeModuleTest, GivesTheGradientsOfTheHooks) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor wanted = plain_gradients(group);
    MoeToy toy;
    toy.shard(ShardingGroups::of(group));
    const int64_t sharded = resting_bytes(toy);
    disable_fsdp_for_moe_module(toy);
    for (int i = 0; i < kMicroBatches; ++i) toy.loss(input_of(group, i)).backward();
    expect(num_reductions(toy) == 0, "nothing is reduced before");
    run_post_backward_for_moe_module(toy);
    expect(switches_of(toy) == kOn, "switches");
    expect(num_reductions(toy) == kNumUnits, "one reduction a unit");
    expect(resting_bytes(toy) == 2 * sharded, "parameters are freed, gradients are there");
    expect_near(gradients_of(toy), wanted, "gradients");
  });
}

}  // namespace
}  // namespace automodel::distributed

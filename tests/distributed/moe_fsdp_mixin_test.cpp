#include "distributed/moe_fsdp_mixin.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <set>

#include "comm/ranks.h"
#include "distributed/fully_sharded.h"
#include "distributed/toy_moe.h"
#include "support/errors.h"

// One test a row of upstream's components.moe.fsdp_mixin, named after the row.

namespace automodel::distributed {
namespace {

using comm::expect;
using comm::ProcessGroup;
using Names = std::vector<std::string>;

/// Every unit of a module, by fqn.
void collect_units(const torch::nn::Module& module, const std::string& prefix,
                   std::map<std::string, FSDPModule*>& units) {
  if (FSDPModule* unit = fsdp_module(module)) units[prefix.empty() ? "(outer)" : prefix] = unit;
  for (const auto& child : module.named_children()) {
    collect_units(*child.value(), prefix.empty() ? child.key() : cat(prefix, ".", child.key()),
                  units);
  }
}

std::map<std::string, FSDPModule*> units_of(const torch::nn::Module& module) {
  std::map<std::string, FSDPModule*> units;
  collect_units(module, "", units);
  return units;
}

Names names_of(const torch::nn::Module& module, const std::vector<FSDPModule*>& wanted) {
  Names names;
  for (const FSDPModule* unit : wanted) {
    for (const auto& [name, found] : units_of(module)) {
      if (found == unit) names.push_back(name);
    }
  }
  return names;
}

Names iterated(torch::nn::Module& module) {
  return names_of(module, iter_fsdp_modules(module));
}

/// The three switches of every unit, "FFF" or "TTT", those that occur.
std::set<std::string> switches_of(const torch::nn::Module& module) {
  std::set<std::string> found;
  const auto letter = [](bool value) { return value ? 'T' : 'F'; };
  for (const auto& [name, unit] : units_of(module)) {
    found.insert({letter(unit->is_last_backward()), letter(unit->reshard_after_backward()),
                  letter(unit->requires_gradient_sync())});
  }
  return found;
}

const std::set<std::string> kOff = {"FFF"};
const std::set<std::string> kOn = {"TTT"};

/// Reductions of all trees of a module.
int64_t num_reductions(const torch::nn::Module& module) {
  std::set<const ShardingCounts*> trees;
  int64_t count = 0;
  for (const auto& [name, unit] : units_of(module)) {
    if (trees.insert(&unit->counts()).second) count += unit->counts().reductions;
  }
  return count;
}

int64_t resting_bytes(const torch::nn::Module& module) {
  int64_t bytes = 0;
  for (const auto& [name, unit] : units_of(module)) bytes += unit->resting_bytes();
  return bytes;
}

bool are_all_unsharded(const torch::nn::Module& module) {
  for (const auto& [name, unit] : units_of(module)) {
    if (!unit->is_unsharded()) return false;
  }
  return true;
}

/// This rank's ranges of all units' gradients.
at::Tensor gradients_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const auto& [name, unit] : units_of(module)) {
    for (const UnitParameters& part : unit->parameters()) parts.push_back(part.gradients.clone());
  }
  return at::cat(parts);
}

void expect_near(const at::Tensor& found, const at::Tensor& wanted, const std::string& what) {
  const double off = ((found - wanted).norm() / wanted.norm()).item<double>();
  expect(off < 1e-6 && wanted.norm().item<double>() > 0, cat(what, ": off by ", off));
}

ProcessGroup solo() {
  return ProcessGroup::solo();
}

constexpr int kMicroBatches = 3;
constexpr int64_t kNumUnits = 7;  // two blocks, their experts, embed_tokens, model, lm_head

at::Tensor input_of(const ProcessGroup& group, int micro_batch) {
  return toy_input(10 * micro_batch + group.rank());
}

/// A step without the mixin: every micro-batch reduces.
at::Tensor plain_gradients(const ProcessGroup& group) {
  MoeToy toy;
  toy.shard(ShardingGroups::of(group));
  for (int i = 0; i < kMicroBatches; ++i) toy.loss(input_of(group, i)).backward();
  expect(num_reductions(toy) == kNumUnits * kMicroBatches, "reductions without the mixin");
  return gradients_of(toy);
}

// ---- MoEFSDPSyncMixin ---------------------------------------------------------------------------

TEST(MoEFSDPSyncMixinTest, AStepReducesOnceAUnitAndHasTheGradientsOfReducingEachMicroBatch) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor wanted = plain_gradients(group);
    for (const bool wraps_outer_model : {false, true}) {
      MoeToy toy({.wraps_outer_model = wraps_outer_model});
      toy.shard(ShardingGroups::of(group));
      GradAccumulationState state;
      prepare_for_grad_accumulation({&toy}, false, state);
      for (int i = 0; i < kMicroBatches; ++i) {
        if (i + 1 == kMicroBatches) prepare_for_final_backward({&toy}, false, state);
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
    // Whole parameters and whole gradients lie beside the ranges.
    expect(resting_bytes(toy) == 3 * sharded, cat(resting_bytes(toy), " bytes rest"));
    expect(gradients_of(toy).abs().sum().item<double>() == 0, "nothing is reduced");
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
    expect(resting_bytes(toy) == sharded, cat(resting_bytes(toy), " bytes rest"));
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
    GradAccumulationState state;
    for (int step = 0; step < 2; ++step) {
      prepare_for_grad_accumulation({&toy}, false, state);
      expect(!state.is_optim_step && state.is_first_microbatch, "state of a new step");
      for (int i = 0; i < kMicroBatches; ++i) {
        if (i + 1 == kMicroBatches) prepare_for_final_backward({&toy}, false, state);
        toy.loss(inputs[static_cast<size_t>(i)]).backward();
        prepare_after_first_microbatch(state);
        expect(!state.is_first_microbatch, "state after a micro-batch");
      }
      expect(state.is_optim_step, "state at the end");
      expect_near(gradients_of(toy), wanted, cat("gradients of step ", step));
      for (const auto& [name, unit] : units_of(toy)) unit->zero_gradients();
    }
  });
}

TEST(MoEFSDPSyncMixinTest, PipelinesOnlyChangeTheState) {
  MoeToy toy;
  toy.shard(ShardingGroups::of(solo()));
  GradAccumulationState state;
  prepare_for_grad_accumulation({&toy}, true, state);
  EXPECT_EQ(switches_of(toy), kOn);
  EXPECT_TRUE(!state.is_optim_step && state.is_first_microbatch);
  disable_fsdp_for_moe_module(toy);
  prepare_for_final_backward({&toy}, true, state);
  EXPECT_EQ(switches_of(toy), kOff);
  EXPECT_TRUE(state.is_optim_step);
}

/// The engine of a recipe drives the same switches around its micro-batches.
TEST(MoEFSDPSyncMixinTest, AnEngineThatKeepsGathersAndReducesOnceAStep) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const auto step = [&](bool keeps) {
      MoeToy toy({.wraps_outer_model = true});
      toy.shard(ShardingGroups::of(group), {.reshard_after_forward = false});
      FullySharded engine(toy);
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
    expect(resting_bytes(toy) == sharded, "parameters are freed");
    expect_near(gradients_of(toy), wanted, "gradients");
  });
}

// ---- patched_backward_maybe_with_nosync
// -----------------------------------------------------------

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
      patched_backward_maybe_with_nosync({.submod = &toy}, "full", {graph_of(toy, toy_input(1))});
  EXPECT_TRUE(at::equal(grads, autograd_gradients().input));
  EXPECT_TRUE(at::equal(toy.parameters()[0].grad(), autograd_gradients().weight));
  EXPECT_FALSE(param_groups.has_value());
}

TEST(PatchedBackwardTest, InputComputesTheInputsGradientAndLeavesTheParameters) {
  LinearToy toy(1.0);
  const auto [grads, param_groups] =
      patched_backward_maybe_with_nosync({.submod = &toy}, "input", {graph_of(toy, toy_input(1))});
  EXPECT_TRUE(at::equal(grads, autograd_gradients().input));
  EXPECT_FALSE(toy.parameters()[0].grad().defined());
  EXPECT_TRUE(param_groups.has_value());
}

TEST(PatchedBackwardTest, WeightCompletesTheParametersGradients) {
  LinearToy toy(1.0);
  auto first =
      patched_backward_maybe_with_nosync({.submod = &toy}, "input", {graph_of(toy, toy_input(1))});
  const auto second = patched_backward_maybe_with_nosync({.submod = &toy}, "weight",
                                                         {.param_groups = &*first.param_groups});
  EXPECT_FALSE(second.grads.defined());
  EXPECT_FALSE(second.param_groups.has_value());
  EXPECT_TRUE(at::allclose(toy.parameters()[0].grad(), autograd_gradients().weight, 1e-6, 1e-7));
}

TEST(PatchedBackwardTest, OtherTypesAreNamed) {
  LinearToy toy(1.0);
  EXPECT_EQ(test::error_of<UserError>(
                [&] { patched_backward_maybe_with_nosync({.submod = &toy}, "half", {}); }),
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

TEST(PatchedBackwardTest, DdpAllReducesAfterTheLastBackwardOnly) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    ReplicatedToy replicated(group);
    const BackwardStage stage{.submod = &replicated.toy, .replicas = &replicated.engine};
    const at::Tensor own = replicated.engine.gradients()[0].buffer;
    // Ranks do not meet before the last one: their sums differ.
    for (int i = 0; i < kMicroBatches; ++i) {
      const StageGraph graph = graph_of(replicated.toy, input_of(group, i));
      const bool is_last = i + 1 == kMicroBatches;
      patched_backward_maybe_with_nosync(stage, "full", {graph}, is_last);
      const auto sums = group.all_gather_text(cat(own.sum().item<double>()));
      expect((sums[0] == sums[1]) == is_last, cat("micro-batch ", i));
    }
    at::Tensor wanted = at::zeros({6, 6});
    for (int i = 0; i < kMicroBatches; ++i) {
      LinearToy toy(1.0);
      const StageGraph graph = graph_of(toy, input_of(group, i));
      torch::autograd::backward({graph.output}, {graph.output_gradient});
      wanted += toy.parameters()[0].grad() / 2;
    }
    group.all_reduce(wanted, comm::ReduceOp::kSum);
    expect_near(own.narrow(0, 0, 36), wanted.view({-1}), "gradients");
  });
}

/// Runs micro-batches through a stage's backward; the last one is `last`.
void run_stage(MoeToy& toy, const BackwardStage& stage, const ProcessGroup& group) {
  for (int i = 0; i < kMicroBatches; ++i) {
    StageGraph graph = graph_of(toy, input_of(group, i));
    graph.output = graph.output.pow(2).mean();
    graph.output_gradient = at::Tensor();
    patched_backward_maybe_with_nosync(stage, "full", {graph}, i + 1 == kMicroBatches);
  }
}

TEST(PatchedBackwardTest, AnFsdpUnitReducesOnceAUnitAfterTheLastBackward) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor wanted = plain_gradients(group);
    MoeToy toy({.wraps_outer_model = true});
    toy.shard(ShardingGroups::of(group));
    run_stage(toy, {.submod = &toy}, group);  // no state is asked
    expect(num_reductions(toy) == kNumUnits, cat(num_reductions(toy), " reductions"));
    expect(switches_of(toy) == kOn, "switches after the last");
    expect_near(gradients_of(toy), wanted, "gradients");
  });
}

TEST(PatchedBackwardTest, AnFsdpUnitThatReducesEachMicroBatchHasTheSameGradients) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor wanted = plain_gradients(group);
    MoeToy toy({.wraps_outer_model = true});
    toy.shard(ShardingGroups::of(group));
    run_stage(toy, {.submod = &toy, .reduce_grad_per_microbatch = true}, group);
    expect(num_reductions(toy) == kNumUnits * kMicroBatches, "reductions");
    expect_near(gradients_of(toy), wanted, "gradients");
  });
}

TEST(PatchedBackwardTest, AMoeMixinThatIsNoUnitReducesWhenAnOptimizerStepFollows) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor wanted = plain_gradients(group);
    MoeToy toy;
    toy.shard(ShardingGroups::of(group));
    GradAccumulationState state{.is_optim_step = false};
    run_stage(toy, {.submod = &toy, .state = &state}, group);
    expect(num_reductions(toy) == 0, "no step follows: nothing is reduced");
    expect(switches_of(toy) == kOff, "switches");
    for (const auto& [name, unit] : units_of(toy)) unit->zero_gradients();
    state.is_optim_step = true;
    run_stage(toy, {.submod = &toy, .state = &state}, group);
    expect(num_reductions(toy) == kNumUnits, "one reduction a unit");
    expect_near(gradients_of(toy), wanted, "gradients");
  });
}

TEST(PatchedBackwardTest, InputAndWeightOfAMoeMixinAreTheFullOne) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const GradAccumulationState state{.is_optim_step = true};
    const auto gradients = [&](bool is_split) {
      MoeToy toy;
      toy.shard(ShardingGroups::of(group));
      const BackwardStage stage{.submod = &toy, .state = &state};
      for (int i = 0; i < 2; ++i) {
        const StageGraph graph = graph_of(toy, input_of(group, i));
        if (!is_split) {
          patched_backward_maybe_with_nosync(stage, "full", {graph}, i == 1);
          continue;
        }
        auto first = patched_backward_maybe_with_nosync(stage, "input", {graph});
        patched_backward_maybe_with_nosync(stage, "weight", {.param_groups = &*first.param_groups},
                                           i == 1);
      }
      expect(num_reductions(toy) == kNumUnits, "reductions");
      return gradients_of(toy);
    };
    expect_near(gradients(true), gradients(false), "gradients");
  });
}

/// Two stages behind one another, driven by the patch, against the one model by its hooks.
TEST(PatchedBackwardTest, TwoStagesHaveTheGradientsOfOneModel) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ProcessGroup group = world.group();
    const at::Tensor wanted = plain_gradients(group);
    MoeToy toy;  // stage 0: toy.model, a unit; stage 1: toy.lm_head, another
    toy.shard(ShardingGroups::of(group));
    const GradAccumulationState state{.is_optim_step = true};
    const BackwardStage first{.submod = toy.model.get(), .state = &state};
    const BackwardStage second{.submod = toy.lm_head.get(), .state = &state};
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

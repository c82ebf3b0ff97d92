#include "distributed/plan/memory_plan.h"
#include "distributed/fsdp/flat_units.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "comm/groups/group_backend.h"
#include "comm/groups/imagined_group.h"
#include "comm/ranks.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/engine/moe_fsdp_mixin.h"
#include "distributed/engine/sharded_engine.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/small_llama.h"
#include "distributed/tensor/split_module.h"
#include "distributed/tensor/tp_layer_plan.h"
#include "kernels/optimizer/optimizer_step.h"
#include "kernels/optimizer/step_reference.h"
#include "nn/layer_list.h"
#include "support/allocation_counter.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {
namespace {

/// A group that only knows its size and sends nothing.
class NumberedGroup final : public comm::GroupBackend {
 public:
  NumberedGroup(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<comm::BackendWork> start(const comm::Collective&) override { return nullptr; }

 private:
  int rank_;
  int size_;
};

comm::ProcessGroup numbered_group(int rank, int size) {
  return {"data", std::make_shared<NumberedGroup>(rank, size)};
}

/// x + x w + b through a hook: 36 + 6 elements.
class PlannedBlock final : public torch::nn::Module, public nn::HookedModule {
 public:
  explicit PlannedBlock(at::ScalarType dtype) {
    weight_ = register_parameter("weight", tensor::placeholder({6, 6}, dtype));
    bias_ = register_parameter("bias", tensor::placeholder({6}, dtype));
  }
  nn::UnitHook& unit_hook() override { return hook_; }
  at::Tensor forward(const at::Tensor& x) {
    return hook_({x}, [this](const nn::TensorList& in) {
      return nn::TensorList{in[0] + at::addmm(bias_, in[0].to(weight_.scalar_type()), weight_)};
    })[0];
  }

 private:
  nn::UnitHook hook_;
  at::Tensor weight_, bias_;
};

/// Three blocks and a scale of 6 elements at the root.
class PlannedModule final : public torch::nn::Module, public nn::HookedModule {
 public:
  explicit PlannedModule(at::ScalarType dtype = at::kFloat) {
    scale_ = register_parameter("scale", tensor::placeholder({6}, dtype));
    auto layers = register_module("layers", std::make_shared<nn::LayerList>());
    for (const char* name : {"0", "1", "2"}) {
      blocks_.push_back(layers->register_module(name, std::make_shared<PlannedBlock>(dtype)));
    }
  }
  nn::UnitHook& unit_hook() override { return hook_; }
  at::Tensor loss(const at::Tensor& x) {
    return hook_({x}, [this](const nn::TensorList& in) {
      at::Tensor hidden = in[0] * scale_;
      for (const auto& block : blocks_) hidden = block->forward(hidden);
      return nn::TensorList{hidden.sum()};
    })[0];
  }
  static nn::ParallelPlan plan() {
    nn::ParallelPlan plan;
    plan.blocks = {"layers.0", "layers.1", "layers.2"};
    return plan;
  }
  tensor::KeyMap keys() const { return own_names(*this); }

 private:
  nn::UnitHook hook_;
  at::Tensor scale_;
  std::vector<std::shared_ptr<PlannedBlock>> blocks_;
};

// Elements of flat buffers in float32: 36 and 6 on borders of 16, over 4 ranks a multiple of 64.
constexpr int64_t kBlockOver4 = 64, kRootOver4 = 64;
constexpr int64_t kBlockAlone = 64, kRootAlone = 16;

MemoryPlan plan_of(const MemoryOptions& options, const nn::ActivationSizes& activations = {},
                   at::ScalarType dtype = at::kFloat) {
  PlannedModule module(dtype);
  return plan_memory(flat_parameters(module, PlannedModule::plan()), options, activations);
}

MemoryOptions sharded_over(int64_t parts, const ShardingOptions& sharding = {}) {
  MemoryOptions options;
  options.num_parts = parts;
  options.sharding = sharding;
  return options;
}

ShardingOptions zero_stage(int64_t stage, bool has_masters = false, bool reduces_wide = false) {
  MegatronFSDPConfig config;
  config.zero_dp_strategy = stage;
  config.preserve_fp32_weights = has_masters;
  config.grad_reduce_in_fp32 = reduces_wide;
  return sharding_options(config, at::kCPU);
}

TEST(MemoryPlanTest, ReplicatedStateIsWhole) {
  const MemoryPlan plan = plan_of({});
  const int64_t elements = 3 * kBlockAlone + kRootAlone;
  EXPECT_EQ(plan.parameters, 4 * elements);
  EXPECT_EQ(plan.gradients, 4 * elements);
  EXPECT_EQ(plan.optimizer, 2 * 4 * elements);
  EXPECT_EQ(plan.peak.total(), plan.gradients);
  EXPECT_EQ(plan.per_step, StepCollectives{});
  EXPECT_EQ(plan.largest_unit().unit, "layers.0");
}

TEST(MemoryPlanTest, GradientsThatComeWithBackwardTakeTurnsWithActivations) {
  nn::ActivationSizes activations;
  activations.block_kept = 1000;  // more than a block's gradients
  MemoryOptions options;
  const MemoryPlan one = plan_of(options, activations);
  EXPECT_EQ(one.kept_gradients, 0);
  EXPECT_EQ(one.peak.name, "backward of layers.2");
  EXPECT_EQ(one.peak.activations, 3 * 1000);
  EXPECT_EQ(one.peak.gradients, 4 * (kRootAlone + kBlockAlone));
  options.num_micro_batches = 2;  // those of the first are there in the second
  EXPECT_EQ(plan_of(options, activations).peak.gradients, 4 * (kRootAlone + 3 * kBlockAlone));
  options = sharded_over(4);  // a range comes with its reduction: after the activations are gone
  const MemoryPlan sharded = plan_of(options, activations);
  EXPECT_EQ(sharded.kept_gradients, 0);
  EXPECT_EQ(sharded.peak.gradients, 0);
  EXPECT_EQ(sharded.state(), sharded.parameters + sharded.optimizer);
  options.num_micro_batches = 2;
  options.sharding->defers_gradients = false;  // the first micro-batch's are reduced by then
  EXPECT_EQ(plan_of(options, activations).peak.gradients, kRootOver4 + 3 * kBlockOver4);
}

TEST(MemoryPlanTest, GradientsStayWhereReplicasOrRecordedStepsReadThem) {
  nn::ActivationSizes activations;
  activations.block_kept = 1000;
  MemoryOptions replicas, recorded, stage;
  replicas.num_replicas = 2;
  recorded.records_steps = true;
  stage.is_stage = true;
  for (const MemoryOptions& options : {replicas, recorded, stage}) {
    const MemoryPlan plan = plan_of(options, activations);
    EXPECT_EQ(plan.kept_gradients, 4 * (kRootAlone + 3 * kBlockAlone));
    EXPECT_EQ(plan.peak.gradients, 0);
  }
}

TEST(MemoryPlanTest, EveryZeroStageShardsOneKindMore) {
  const int64_t whole = 4 * (3 * kBlockOver4 + kRootOver4);
  for (const int64_t stage : {1, 2, 3}) {
    const MemoryPlan plan = plan_of(sharded_over(4, zero_stage(stage)));
    EXPECT_EQ(plan.parameters, stage < 3 ? whole : whole / 4);
    EXPECT_EQ(plan.gradients, stage < 2 ? whole : whole / 4);
    EXPECT_EQ(plan.optimizer, 2 * whole / 4);
  }
}

TEST(MemoryPlanTest, MastersAndTheirStateAreFloat32) {
  const MemoryPlan plan = plan_of(sharded_over(4, zero_stage(2, true)), {}, at::kBFloat16);
  const int64_t elements = 4 * 128;  // borders of 32 elements, ranges of 32 at least
  EXPECT_EQ(plan.parameters, 2 * elements + 4 * elements / 4);
  EXPECT_EQ(plan.gradients, 4 * elements / 4);
  EXPECT_EQ(plan.optimizer, 2 * 4 * elements / 4);
}

TEST(MemoryPlanTest, WhatAStepNeedsOnTopIsCountedAtItsFullestMoment) {
  ShardingOptions sharding;
  sharding.param_dtype = at::kBFloat16;
  nn::ActivationSizes activations;
  activations.embedding = 1000;
  activations.block_kept = 5000;
  activations.block_backward = 700;
  const MemoryPlan plan = plan_of(sharded_over(4, sharding), activations);
  EXPECT_EQ(plan.peak.name, "backward of layers.2");
  EXPECT_EQ(plan.peak.gathered, 2 * (kRootOver4 + kBlockOver4));
  EXPECT_EQ(plan.peak.whole_gradients, 2 * (kRootOver4 + kBlockOver4));
  EXPECT_EQ(plan.peak.activations, 1000 + 3 * 5000);
  EXPECT_EQ(plan.peak.working, 700);
}

TEST(MemoryPlanTest, DeferredGradientsStayWholeBetweenMicroBatches) {
  nn::ActivationSizes activations;
  activations.block_kept = 100000;
  activations.block_backward = 1;
  MemoryOptions options = sharded_over(4);
  options.num_micro_batches = 2;
  const MemoryPlan deferred = plan_of(options, activations);
  EXPECT_EQ(deferred.peak.whole_gradients, 4 * (kRootOver4 + 3 * kBlockOver4));
  EXPECT_EQ(deferred.peak.name, "backward of layers.2, micro-batch 2");
  options.sharding->defers_gradients = false;
  const MemoryPlan eager = plan_of(options, activations);
  EXPECT_EQ(eager.peak.whole_gradients, 4 * (kRootOver4 + kBlockOver4));
}

TEST(MemoryPlanTest, SumsOfMicroBatchesHaveTheReductionsDtype) {
  ShardingOptions sharding;
  sharding.param_dtype = at::kBFloat16;
  sharding.reduce_dtype = at::kFloat;
  nn::ActivationSizes activations;
  activations.block_kept = 100000;
  activations.block_backward = 1;
  MemoryOptions options = sharded_over(4, sharding);
  options.num_micro_batches = 2;
  const MemoryPlan plan = plan_of(options, activations);
  EXPECT_EQ(plan.peak.whole_gradients,
            4 * (kRootOver4 + 3 * kBlockOver4) + 2 * (kRootOver4 + kBlockOver4));
}

TEST(MemoryPlanTest, AReductionUnderWayKeepsItsGradients) {
  nn::ActivationSizes activations;
  activations.embedding = 1;
  MemoryOptions options = sharded_over(4);
  options.sharding->overlaps_reductions = false;
  EXPECT_EQ(plan_of(options, activations).peak.whole_gradients, 4 * (kRootOver4 + kBlockOver4));
  options.sharding->overlaps_reductions = true;
  EXPECT_EQ(plan_of(options, activations).peak.whole_gradients, 4 * (kRootOver4 + 2 * kBlockOver4));
}

TEST(MemoryPlanTest, RecomputedBlocksKeepTheirInputs) {
  nn::ActivationSizes activations;
  activations.embedding = 10;
  activations.block_kept = 5000;
  activations.block_input = 1000;  // more than a block's gradients
  MemoryOptions options;
  options.recomputes = true;
  const MemoryPlan plan = plan_of(options, activations);
  EXPECT_EQ(plan.peak.activations, 10 + 3 * 1000);
  EXPECT_EQ(plan.peak.working, 5000);
}

TEST(MemoryPlanTest, PrefetchedUnitsAreThereTogether) {
  nn::ActivationSizes activations;
  activations.block_backward = 1;
  MemoryOptions options = sharded_over(4);
  options.sharding->reshard_after_forward = true;
  const int64_t one = plan_of(options, activations).peak.gathered;
  EXPECT_EQ(one, 4 * (kRootOver4 + kBlockOver4));
  options.sharding->backward_prefetch_depth = 1;
  options.sharding->forward_prefetch_depth = 1;
  EXPECT_EQ(plan_of(options, activations).peak.gathered, one + 4 * kBlockOver4);
  // No more than there are: two blocks.
  options.sharding->backward_prefetch_depth = int64_t{1} << 60;
  options.sharding->forward_prefetch_depth = int64_t{1} << 60;
  EXPECT_EQ(plan_of(options, activations).peak.gathered, one + 4 * kBlockOver4);
}

/// Who sets a unit's switches between micro-batches.
struct UnitDriver {
  bool is_mixin = false;
  bool is_stage = false;
};

/// What an engine over `size` ranks counts in a step, as the first of them.
ShardingCounts count_step(const ShardingOptions& options, int size, int num_micro_batches,
                          const UnitDriver& driver) {
  at::set_num_threads(1);
  PlannedModule module;
  ShardedEngine engine(module, module.keys(), ShardingGroups::of(numbered_group(0, size)), options);
  if (driver.is_mixin) engine.keep_between_micro_batches();
  engine.zero_gradients();
  engine.parameters_changed();
  for (int i = 0; i < num_micro_batches; ++i) {
    const bool is_last = i + 1 == num_micro_batches;
    if (driver.is_stage) {
      const StageGraph graph{.output = module.loss(at::ones({2, 6}))};
      patched_backward_maybe_with_nosync(engine.backward_stage(), "full", {graph}, is_last);
      continue;
    }
    engine.begin_micro_batch(is_last);
    module.loss(at::ones({2, 6})).backward();
    engine.end_micro_batch();
  }
  engine.reduce_gradients();
  return engine.counts();
}

void expect_planned(const ShardingOptions& sharding, int num_micro_batches,
                    const UnitDriver& driver = {}) {
  const ShardingCounts counts = count_step(sharding, 2, num_micro_batches, driver);
  MemoryOptions options = sharded_over(2, sharding);
  options.num_micro_batches = num_micro_batches;
  options.keeps_after_backward = driver.is_mixin;
  options.is_stage = driver.is_stage;
  const StepCollectives planned = plan_of(options).per_step;
  EXPECT_EQ(planned.num_gathers, counts.gathers);
  EXPECT_EQ(planned.gathered_bytes, counts.gathered_bytes);
  EXPECT_EQ(planned.num_reductions, counts.reductions);
  EXPECT_EQ(planned.reduced_bytes, counts.reduced_bytes);
}

TEST(MemoryPlanTest, CollectivesOfFsdp2AreThoseOfTheEngine) {
  for (const auto& reshards : {std::optional<bool>(), std::optional(true), std::optional(false)}) {
    for (const bool defers : {true, false}) {
      for (const int num_micro_batches : {1, 2, 5}) {
        FSDP2Config config;
        config.reshard_after_forward = reshards;
        config.defer_fsdp_grad_sync = defers;
        expect_planned(sharding_options(config, at::kCPU), num_micro_batches);
      }
    }
  }
}

TEST(MemoryPlanTest, CollectivesOfUnitsThatStayGatheredAreThoseOfTheEngine) {
  for (const UnitDriver& driver :
       {UnitDriver{.is_mixin = true}, {.is_stage = true}, {.is_mixin = true, .is_stage = true}}) {
    for (const auto& reshards : {std::optional<bool>(), std::optional(false)}) {
      for (const bool defers : {true, false}) {
        for (const int num_micro_batches : {1, 4}) {
          FSDP2Config config;
          config.reshard_after_forward = reshards;
          config.defer_fsdp_grad_sync = defers;
          SCOPED_TRACE(cat(driver.is_mixin, driver.is_stage, defers, num_micro_batches));
          expect_planned(sharding_options(config, at::kCPU), num_micro_batches, driver);
        }
      }
    }
  }
}

/// All blocks are there at once when those of the second micro-batch's backward are.
TEST(MemoryPlanTest, UnitsThatStayGatheredAreThereTogether) {
  nn::ActivationSizes activations;
  activations.block_backward = 1;
  MemoryOptions options = sharded_over(4);
  options.sharding->reshard_after_forward = true;
  options.num_micro_batches = 2;
  EXPECT_EQ(plan_of(options, activations).peak.gathered, 4 * (kRootOver4 + kBlockOver4));
  for (bool MemoryOptions::*kept :
       {&MemoryOptions::keeps_after_backward, &MemoryOptions::is_stage}) {
    MemoryOptions own = options;
    own.*kept = true;
    EXPECT_EQ(plan_of(own, activations).peak.gathered, 4 * (kRootOver4 + 3 * kBlockOver4));
  }
}

TEST(MemoryPlanTest, CollectivesOfMegatronFsdpAreThoseOfTheEngine) {
  for (const int64_t stage : {1, 2, 3}) {
    for (const int num_micro_batches : {1, 3}) {
      expect_planned(zero_stage(stage), num_micro_batches);
      expect_planned(zero_stage(stage, true, true), num_micro_batches);
    }
  }
}

int64_t shard_bytes(const std::vector<tensor::FlatShard>& shards) {
  int64_t bytes = 0;
  for (const tensor::FlatShard& shard : shards)
    bytes += static_cast<int64_t>(shard.buffer.nbytes());
  return bytes;
}

TEST(MemoryPlanTest, StateIsWhatReplicasHold) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    PlannedModule whole(dtype);
    const DataParallel replicas(whole, PlannedModule::plan(), whole.keys(), numbered_group(0, 3),
                                {});
    const MemoryPlan plan = plan_of({}, {}, dtype);
    EXPECT_EQ(plan.parameters, shard_bytes(replicas.parameters()));
    EXPECT_EQ(plan.gradients, shard_bytes(replicas.gradients()));
    EXPECT_EQ(plan.optimizer, 2 * shard_bytes(replicas.trained()));
  }
}

/// Holds the plan against an engine at rest, on the first and on the last rank.
void expect_held(const ShardingOptions& sharding, int size, at::ScalarType dtype) {
  const MemoryPlan plan = plan_of(sharded_over(size, sharding), {}, dtype);
  for (const int rank : {0, size - 1}) {
    PlannedModule module(dtype);
    const ShardedEngine engine(module, module.keys(),
                               ShardingGroups::of(numbered_group(rank, size)), sharding);
    int64_t resting = 0;
    for (const FSDPModule* unit : engine.root().tree_units()) resting += unit->resting_bytes();
    EXPECT_EQ(plan.parameters + plan.kept_gradients, resting);
    EXPECT_EQ(plan.optimizer, 2 * shard_bytes(engine.trained()));
    if (sharding.parameters == Placement::kSharded) {
      EXPECT_EQ(plan.parameters, shard_bytes(engine.parameters()));
      EXPECT_EQ(plan.gradients, shard_bytes(engine.gradients()));
    }
  }
}

TEST(MemoryPlanTest, StateIsWhatShardedEnginesHold) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int size : {1, 2, 3, 7}) {
      expect_held(sharding_options(FSDP2Config{}, at::kCPU), size, dtype);
      for (const int64_t stage : {1, 2, 3}) {
        for (const bool has_masters : {false, true}) {
          expect_held(zero_stage(stage, has_masters, false), size, dtype);
          expect_held(zero_stage(stage, has_masters, true), size, dtype);
        }
      }
    }
  }
}

TEST(MemoryPlanTest, FrozenParametersHaveNeitherGradientsNorState) {
  PlannedModule module;
  for (const auto& item : module.named_parameters()) {
    if (item.key().starts_with("layers.1.")) at::Tensor(item.value()).set_requires_grad(false);
  }
  const MemoryPlan plan =
      plan_memory(flat_parameters(module, PlannedModule::plan()), sharded_over(4), {});
  EXPECT_EQ(plan.parameters, 4 * (kRootOver4 + 3 * kBlockOver4) / 4);
  EXPECT_EQ(plan.gradients, 4 * (kRootOver4 + 2 * kBlockOver4) / 4);
  EXPECT_EQ(plan.per_step.num_reductions, 3);
}

TEST(MemoryPlanTest, StrategiesSetTheOptionsThatTheirEnginesTake) {
  DistributedSetup setup;
  EXPECT_FALSE(memory_options(setup, mesh::MeshSizes{}).sharding);
  const MemoryOptions fsdp2 =
      memory_options(setup, mesh::MeshSizes{.dp_replicate = 2, .dp_shard = 4});
  EXPECT_EQ(fsdp2.num_parts, 4);
  EXPECT_EQ(fsdp2.num_replicas, 2);
  ASSERT_TRUE(fsdp2.sharding);
  EXPECT_EQ(fsdp2.sharding->param_dtype, at::kBFloat16);
  setup.strategy = Strategy::kMegatronFsdp;
  setup.megatron_fsdp.zero_dp_strategy = 2;
  const MemoryOptions megatron = memory_options(setup, mesh::MeshSizes{.dp_shard = 8});
  EXPECT_EQ(megatron.num_parts, 8);
  EXPECT_EQ(megatron.num_replicas, 1);
  ASSERT_TRUE(megatron.sharding);
  EXPECT_EQ(megatron.sharding->parameters, Placement::kReplicated);
  setup.megatron_fsdp.zero_dp_strategy = 0;
  const MemoryOptions whole = memory_options(setup, mesh::MeshSizes{.dp_shard = 8});
  EXPECT_EQ(whole.num_parts, 1);
  EXPECT_EQ(whole.num_replicas, 8);  // units are reduced one by one, not in DDP's buckets
  EXPECT_EQ(whole.sharding->gradients, Placement::kReplicated);
  setup.megatron_fsdp.data_parallel_sharding_strategy = "params";
  const MemoryOptions named = memory_options(setup, mesh::MeshSizes{.dp_shard = 8});
  EXPECT_EQ(named.num_parts, 8);
  EXPECT_EQ(named.sharding->parameters, Placement::kSharded);
  EXPECT_EQ(named.sharding->gradients, Placement::kReplicated);
  setup.strategy = Strategy::kDdp;
  setup.ddp.bucket_cap_mb = 2;
  const MemoryOptions ddp = memory_options(setup, mesh::MeshSizes{.dp_shard = 8});
  EXPECT_FALSE(ddp.sharding);
  EXPECT_EQ(ddp.num_replicas, 8);
  EXPECT_EQ(ddp.bucket_bytes, int64_t{2} << 20);
}

MemoryOptions on_a_device(const FSDP2Config& config = {}) {
  DistributedSetup setup;
  setup.fsdp2 = config;
  return memory_options(setup, mesh::MeshSizes{.dp_shard = 4}, at::kCUDA);
}

// Ranges of a flat buffer in bytes, and whole ones; computed in bfloat16, reduced in float32.
constexpr int64_t kBlockRange = 4 * kBlockOver4 / 4, kBlockGathered = 2 * kBlockOver4;

TEST(MemoryPlanTest, ADeviceGathersTheBlockBeforeAheadInBackward) {
  FSDP2Config config;
  config.reshard_after_forward = true;
  const auto gathered = [](MemoryOptions options) {
    options.optimizer_bytes = [](at::ScalarType) { return int64_t{0}; };
    nn::ActivationSizes only_backward;
    only_backward.block_backward = int64_t{1} << 20;
    return plan_of(options, only_backward).peak.gathered;
  };
  MemoryOptions device = on_a_device(config);
  const int64_t ahead = gathered(device);
  device.sharding->prefetches_implicitly = false;
  EXPECT_EQ(ahead, gathered(device) + kBlockGathered);
}

TEST(MemoryPlanTest, OffloadedStateIsTheHosts) {
  FSDP2Config config;
  const MemoryPlan resting = plan_of(on_a_device(config));
  EXPECT_EQ(resting.host, 0);
  config.offload_policy = CPUOffloadPolicy{};
  const MemoryPlan offloaded = plan_of(on_a_device(config));
  EXPECT_EQ(offloaded.host, resting.state() + resting.gradients);
  EXPECT_EQ(offloaded.state(), 0);
  EXPECT_EQ(offloaded.units[1].gather_copy, kBlockGathered / 4);  // the range, cast and copied
  EXPECT_EQ(offloaded.units[1].sum_copy, kBlockRange);
  MemoryOptions cpu = on_a_device(config);
  cpu.device = cpu.sharding->device = at::kCPU;
  EXPECT_EQ(plan_of(cpu).host, 0);
}

TEST(MemoryPlanTest, ADeviceUpdatesAUnitAtOnce) {
  MemoryOptions options;  // replicas: all of a block
  options.device = at::kCUDA;
  const MemoryPlan plan = plan_of(options);
  EXPECT_EQ(plan.peak.name, "the update");
  EXPECT_EQ(plan.peak.working, 6 * 4 * kBlockAlone);
  // What the update in ATen's operations takes, in the dtype and with the state that need most
  // copies.
  constexpr int64_t kNumel = 4096;
  const auto zeros = [] { return at::zeros({kNumel}, at::kBFloat16); };
  const std::vector<at::Tensor> values = {zeros(), zeros(), zeros(), zeros(), zeros()};
  const auto counter = std::make_shared<test::AllocationCounter>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
    kernels::adam_step_reference(values[0], values[1], values[2], values[3], values[4],
                                 {.step = 1});
  }
  EXPECT_NEAR(static_cast<double>(counter->peak()), 6 * 4 * kNumel, 64);  // factors are tensors
}

TEST(MemoryPlanTest, BuffersAreCountedWhileWeightsAreLoaded) {
  const MemoryPlan plan = plan_of(on_a_device());
  // A block's: gathered, its gradients, their sum in float32, and this rank's range of it.
  EXPECT_EQ(plan.building, (2 + 2 + 4) * kBlockOver4 + kBlockRange);
}

TEST(MemoryPlanTest, StateOfASplitModelIsWhatItsRanksHold) {
  comm::expect_ranks(4, [](comm::World& world) {
    const auto dp = world.split("dp", {{0, 2}, {1, 3}});
    const auto tp = world.split("tp", {{0, 1}, {2, 3}});
    const auto one = comm::ProcessGroup::solo();
    const DeviceMesh mesh({{"dp_replicate", one}, {"dp_shard_cp", dp}, {"dp_cp", dp}, {"tp", tp}});
    // An uneven vocabulary: the first rank has a row more, and all have room for it.
    const std::vector<std::pair<std::string, Json>> changes = {{"vocab_size", Json(129)}};
    SmallLlama llama(changes);
    const auto engine = fsdp2_strategy_parallelize(llama.parallel(), mesh, {});
    SmallLlama planned(changes);
    const TpLayerPlan layers = plan_layers(*planned.model, planned.facts,
                                           get_parallel_plan(planned.facts, false), {.tp_size = 2});
    split_module(*planned.model, planned.facts, layers, comm::imagined_group("tp", 0, 2), false);
    MemoryOptions options = sharded_over(2, sharding_options(FSDP2Config{}, at::kCPU));
    options.tables = untied_tables(*planned.model, planned.facts.plan);
    const MemoryPlan plan = plan_memory(
        flat_parameters(*planned.model, planned.facts.plan, options.tables), options, {});
    int64_t parameters = 0, gradients = 0;
    for (const auto& shard : engine->parameters()) parameters += int64_t(shard.buffer.nbytes());
    for (const auto& shard : engine->gradients()) gradients += int64_t(shard.buffer.nbytes());
    comm::expect(plan.parameters == parameters, cat(plan.parameters, " not ", parameters));
    comm::expect(plan.gradients == gradients, cat(plan.gradients, " not ", gradients));
  });
}

TEST(MemoryPlanTest, ReplicasReduceInBucketsOnceAStep) {
  MemoryOptions options;
  options.num_replicas = 2;
  options.num_micro_batches = 3;
  options.first_bucket_bytes = 256;
  options.bucket_bytes = 512;
  const StepCollectives step = plan_of(options).per_step;
  EXPECT_EQ(step.reduced_bytes, 4 * (3 * kBlockAlone + kRootAlone));  // 832 = 256 + 512 + 64
  EXPECT_EQ(step.num_reductions, 3);
  EXPECT_EQ(step.num_gathers, 0);
}

}  // namespace
}  // namespace automodel::distributed

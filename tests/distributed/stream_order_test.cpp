// The engines over groups that behave as those of an accelerator's streams do
// (tests/comm/recording_group.h): values are those of plain groups to the bit, nothing is used
// before its wait, and collectives are started and waited for where README.md says.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "comm/recorded_runs.h"
#include "distributed/autograd/when_differentiated.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/sgd_step.h"
#include "distributed/toy_model.h"

namespace automodel::distributed {
namespace {

using comm::expect;
using comm::expect_rank_threads;
using comm::expect_ranks;
using comm::expect_same_when_recorded;
using comm::Groups;
using comm::ProcessGroup;
using comm::Recording;
using Texts = std::vector<std::string>;

/// Notes when a module computes: "forward layers.0", "backward layers.0", "differentiated ...".
class Noted final : public nn::UnitBehavior {
 public:
  Noted(std::shared_ptr<Recording> record, const std::string& name)
      : forward_(cat("forward ", name)),
        record_(std::move(record)),
        begin_([this, line = cat("backward ", name)] { record_->note(line); }),
        end_([this, line = cat("differentiated ", name)] { record_->note(line); }) {}

  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body) override {
    record_->note(forward_);
    return when_differentiated(body(when_differentiated(inputs, end_)), begin_);
  }

 private:
  std::string forward_;
  std::shared_ptr<Recording> record_;
  std::function<void()> begin_, end_;  // autograd keeps their addresses
};

/// Before its parts become units, so that the units' own behaviours lie around it.
void note_computation(ToyNet& net, const std::shared_ptr<Recording>& record) {
  net.unit_hook().install(std::make_unique<Noted>(record, "root"));
  for (size_t i = 0; i < net.blocks().size(); ++i) {
    net.blocks()[i]->unit_hook().install(std::make_unique<Noted>(record, cat("layers.", i)));
  }
}

/// Has the record call a unit's collectives by its name.
void name_units(ToyNet& net, const std::shared_ptr<Recording>& record) {
  for (const auto& item : net.named_parameters()) {
    const std::string& fqn = item.key();
    const std::string unit = fqn.starts_with("layers.") ? fqn.substr(0, 8) : "root";
    record->name(item.value(), unit);
    record->name(item.value().grad(), unit);
  }
}

std::vector<at::Tensor> copies_of(const std::vector<tensor::FlatShard>& shards) {
  std::vector<at::Tensor> copies;
  for (const tensor::FlatShard& shard : shards) copies.push_back(shard.buffer.clone());
  return copies;
}

/// Two steps of SGD; the gradients of each, norms and the weights at the end.
std::vector<at::Tensor> train(ToyNet& net, Engine& engine, int rank, int num_micro) {
  std::vector<at::Tensor> values;
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < num_micro; ++i) {
      engine.begin_micro_batch(i + 1 == num_micro);
      const at::Tensor loss = net.loss(toy_input(100 * rank + 10 * step + i));
      loss.backward();
      values.push_back(loss.detach().clone());
      engine.end_micro_batch();
    }
    engine.reduce_gradients();
    for (const at::Tensor& gradient : copies_of(engine.gradients())) values.push_back(gradient);
    values.push_back(at::scalar_tensor(engine.gradient_norm(), at::kDouble));
    sgd_step(engine);
  }
  for (const at::Tensor& weights : copies_of(engine.parameters())) values.push_back(weights);
  return values;
}

/// The toy under fully_shard, over groups made of this world's.
std::vector<at::Tensor> train_sharded(const ShardingGroups& groups, const ShardingOptions& options,
                                      int num_micro) {
  ToyModel toy("ToyForCausalLM", options.main_dtype ? at::kBFloat16 : at::kFloat);
  ShardedEngine engine(toy.net, toy.facts.keys, groups, options);
  return train(toy.net, engine, groups.all.rank(), num_micro);
}

struct Named {
  std::string name;
  ShardingOptions options;
};

ShardingOptions prefetching(int64_t forward, int64_t backward) {
  ShardingOptions options;
  options.forward_prefetch_depth = forward;
  options.backward_prefetch_depth = backward;
  return options;
}

ShardingOptions with(const std::function<void(ShardingOptions&)>& change,
                     ShardingOptions options = {}) {
  change(options);
  return options;
}

ShardingOptions zero_stage(int strategy) {
  MegatronFSDPConfig config;
  config.zero_dp_strategy = strategy;
  return sharding_options(config, at::kCPU);
}

std::vector<Named> sharding_cases() {
  using Options = ShardingOptions;
  return {
      {"fsdp2", {}},
      {"as on accelerators", with([](Options& it) { it.prefetches_implicitly = true; })},
      {"prefetch 1", prefetching(1, 1)},
      {"prefetch 2", prefetching(2, 2)},
      {"prefetch forward", prefetching(3, 0)},
      {"kept after forward", with([](Options& it) { it.reshard_after_forward = false; })},
      {"reduced each", with([](Options& it) { it.defers_gradients = false; }, prefetching(1, 1))},
      {"without overlap", with([](Options& it) { it.overlaps_reductions = false; })},
      {"bfloat16 reduced in float32", with(
                                          [](Options& it) {
                                            it.param_dtype = at::kBFloat16;
                                            it.reduce_dtype = at::kFloat;
                                            it.casts_inputs = true;
                                          },
                                          prefetching(1, 1))},
      {"offloaded",
       with([](Options& it) { it.offload_policy = CPUOffloadPolicy{}; }, prefetching(1, 1))},
      {"averaged in the collective",
       with([](Options& it) { it.scaling = GradientScaling::kAverage; })},
      {"zero 1", zero_stage(1)},
      {"zero 2", zero_stage(2)},
      {"zero 3", zero_stage(3)},
      {"zero 1 of float32 weights", with(
                                        [](Options& it) {
                                          it.main_dtype = at::kFloat;
                                          it.param_dtype = at::kBFloat16;
                                          it.casts_inputs = true;
                                        },
                                        zero_stage(1))}};
}

TEST(StreamOrderTest, ShardedTrainingIsThatOfPlainGroupsToTheBit) {
  expect_rank_threads(2, [](comm::World& world) {
    for (const Named& it : sharding_cases()) {
      for (const int num_micro : {1, 3}) {
        expect_same_when_recorded(
            world, cat(it.name, ", ", num_micro, " micro-batches"), [&](const Groups& over) {
              return train_sharded(ShardingGroups::of(over(world.group())), it.options, num_micro);
            });
      }
    }
  });
}

TEST(StreamOrderTest, ReplicasOfShardsAreThoseOfPlainGroupsToTheBit) {
  expect_rank_threads(4, [](comm::World& world) {
    const ProcessGroup shard = world.split("dp_shard", {{0, 1}, {2, 3}});
    const ProcessGroup replicate = world.split("dp_replicate", {{0, 2}, {1, 3}});
    for (const Named& it : sharding_cases()) {
      expect_same_when_recorded(world, it.name, [&](const Groups& over) {
        return train_sharded({over(world.group()), over(shard), over(replicate)}, it.options, 2);
      });
    }
  });
}

TEST(StreamOrderTest, BucketsOfReplicasAreThoseOfPlainGroupsToTheBit) {
  expect_rank_threads(2, [](comm::World& world) {
    for (const int64_t bytes : {int64_t{64}, int64_t{512}, int64_t{1} << 20}) {
      expect_same_when_recorded(world, cat("buckets of ", bytes), [&](const Groups& over) {
        ToyModel toy;
        DataParallelOptions options;
        options.first_bucket_bytes = options.bucket_bytes = bytes;
        DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, over(world.group()), options);
        return train(toy.net, engine, world.group().rank(), 2);
      });
    }
  });
}

/// What the first rank of two sees in one forward and backward.
Texts lines_of(const comm::World& world, const ShardingOptions& options) {
  const auto record = std::make_shared<Recording>();
  ToyModel toy;
  note_computation(toy.net, record);
  ShardedEngine engine(toy.net, toy.facts.keys, ShardingGroups::of(recorded(world.group(), record)),
                       options);
  name_units(toy.net, record);
  record->take_lines();
  engine.begin_micro_batch(true);
  toy.net.loss(toy_input(0)).backward();
  engine.end_micro_batch();
  engine.reduce_gradients();
  expect(record->mistakes().empty(), join(record->mistakes(), "\n"));
  return record->take_lines();
}

/// Those that say something of gathers (of reductions), and of the computation.
Texts lines_about(const Texts& lines, const std::string& collective) {
  Texts kept;
  for (const std::string& line : lines) {
    const bool is_other = line.starts_with("start") || line.starts_with("wait");
    if (!is_other || line.find(collective) != std::string::npos) kept.push_back(line);
  }
  return kept;
}

void expect_lines(const Texts& found, const Texts& wanted) {
  expect(found == wanted, join(found, "\n"));
}

TEST(StreamOrderTest, PrefetchedGathersBeginBeforeTheUnitBeforeThemComputes) {
  expect_ranks(2, [](comm::World& world) {
    expect_lines(lines_about(lines_of(world, prefetching(1, 1)), "all_gather"),
                 {"start all_gather root",
                  "wait all_gather root",
                  "forward root",
                  "start all_gather layers.0",
                  "start all_gather layers.1",
                  "wait all_gather layers.0",
                  "forward layers.0",
                  "start all_gather layers.2",
                  "wait all_gather layers.1",
                  "forward layers.1",
                  "wait all_gather layers.2",
                  "forward layers.2",
                  "backward root",
                  "start all_gather layers.1",
                  "backward layers.2",
                  "differentiated layers.2",
                  "start all_gather layers.0",
                  "wait all_gather layers.1",
                  "backward layers.1",
                  "differentiated layers.1",
                  "wait all_gather layers.0",
                  "backward layers.0",
                  "differentiated layers.0"});
  });
}

TEST(StreamOrderTest, DeeperPrefetchesBeginEarlier) {
  expect_ranks(2, [](comm::World& world) {
    expect_lines(lines_about(lines_of(world, prefetching(2, 2)), "all_gather"),
                 {"start all_gather root",
                  "wait all_gather root",
                  "forward root",
                  "start all_gather layers.0",
                  "start all_gather layers.1",
                  "start all_gather layers.2",
                  "wait all_gather layers.0",
                  "forward layers.0",
                  "wait all_gather layers.1",
                  "forward layers.1",
                  "wait all_gather layers.2",
                  "forward layers.2",
                  "backward root",
                  "start all_gather layers.1",
                  "start all_gather layers.0",
                  "backward layers.2",
                  "differentiated layers.2",
                  "wait all_gather layers.1",
                  "backward layers.1",
                  "differentiated layers.1",
                  "wait all_gather layers.0",
                  "backward layers.0",
                  "differentiated layers.0"});
  });
}

/// What backward does about a collective, from the first unit's on.
Texts backward_lines(const Texts& lines, const std::string& collective) {
  const Texts kept = lines_about(lines, collective);
  return {std::find(kept.begin(), kept.end(), "backward root"), kept.end()};
}

TEST(StreamOrderTest, WithoutListsAcceleratorsGatherTheUnitThatRanBefore) {
  expect_ranks(2, [](comm::World& world) {
    ShardingOptions options;
    options.prefetches_implicitly = true;
    expect_lines(backward_lines(lines_of(world, options), "all_gather"),
                 {"backward root", "start all_gather layers.1", "backward layers.2",
                  "differentiated layers.2", "start all_gather layers.0",
                  "wait all_gather layers.1", "backward layers.1", "differentiated layers.1",
                  "wait all_gather layers.0", "backward layers.0", "differentiated layers.0"});
  });
}

TEST(StreamOrderTest, AcceleratorsGatherOneBlockAheadUnasked) {
  expect_ranks(2, [](comm::World& world) {
    FSDP2Config config;
    config.mp_policy = MixedPrecisionPolicy{.param_dtype = {}, .reduce_dtype = {}};
    ShardingOptions options = sharding_options(config, at::kCUDA);
    options.prefetches_implicitly = !options.device.is_cpu();
    options.device = at::kCPU;
    const Texts ahead = lines_about(lines_of(world, prefetching(1, 1)), "all_gather");
    expect_lines(lines_about(lines_of(world, options), "all_gather"), ahead);
    expect(sharding_options(config, at::kCPU).forward_prefetch_depth == 0, "on the CPU");
  });
}

TEST(StreamOrderTest, AReductionIsWaitedForOnceTheNextUnitIsDifferentiated) {
  const Texts wanted = {"backward root",
                        "backward layers.2",
                        "differentiated layers.2",
                        "start reduce_scatter layers.2",
                        "backward layers.1",
                        "differentiated layers.1",
                        "wait reduce_scatter layers.2",
                        "start reduce_scatter layers.1",
                        "backward layers.0",
                        "differentiated layers.0",
                        "wait reduce_scatter layers.1",
                        "start reduce_scatter layers.0",
                        "wait reduce_scatter layers.0",
                        "start reduce_scatter root",
                        "wait reduce_scatter root"};
  expect_ranks(2, [&](comm::World& world) {
    expect_lines(backward_lines(lines_of(world, {}), "reduce_scatter"), wanted);
    expect_lines(backward_lines(lines_of(world, prefetching(1, 1)), "reduce_scatter"), wanted);
  });
}

TEST(StreamOrderTest, ReductionsWithoutOverlapAreWaitedForAtOnce) {
  expect_ranks(2, [](comm::World& world) {
    ShardingOptions options;
    options.overlaps_reductions = false;
    expect_lines(
        backward_lines(lines_of(world, options), "reduce_scatter"),
        {"backward root", "backward layers.2", "differentiated layers.2",
         "start reduce_scatter layers.2", "wait reduce_scatter layers.2", "backward layers.1",
         "differentiated layers.1", "start reduce_scatter layers.1", "wait reduce_scatter layers.1",
         "backward layers.0", "differentiated layers.0", "start reduce_scatter layers.0",
         "wait reduce_scatter layers.0", "start reduce_scatter root", "wait reduce_scatter root"});
  });
}

TEST(StreamOrderTest, WhatWasGatheredAheadInVainIsWaitedForBeforeItIsFreed) {
  expect_ranks(2, [](comm::World& world) {
    const auto record = std::make_shared<Recording>();
    ToyNet net;
    FSDPModule& root = shard_toy(net, recorded(world.group(), record));
    fsdp_module(*net.blocks()[0])->start_unshard();
    fsdp_module(*net.blocks()[0])->reshard();
    expect(record->mistakes().empty(), join(record->mistakes(), "\n"));
    const at::NoGradGuard no_grad;
    root.set_modules_to_forward_prefetch({fsdp_module(*net.blocks()[2])});
    net.forward(toy_input(0));
    expect(record->mistakes().empty(), join(record->mistakes(), "\n"));
  });
}

TEST(StreamOrderTest, BucketsAreWaitedForWhenBackwardIsOver) {
  expect_ranks(2, [](comm::World& world) {
    const auto record = std::make_shared<Recording>();
    ToyModel toy;
    note_computation(toy.net, record);
    DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, recorded(world.group(), record),
                        {.first_bucket_bytes = 320, .bucket_bytes = 320});  // a block each
    record->take_lines();
    engine.begin_micro_batch(true);
    toy.net.loss(toy_input(0)).backward();
    engine.end_micro_batch();
    record->note("backward is over");
    engine.reduce_gradients();
    expect(record->mistakes().empty(), join(record->mistakes(), "\n"));
    expect_lines(
        backward_lines(record->take_lines(), "all_reduce"),
        {"backward root", "backward layers.2", "differentiated layers.2", "start all_reduce world",
         "backward layers.1", "differentiated layers.1", "start all_reduce world",
         "backward layers.0", "differentiated layers.0", "start all_reduce world",
         "backward is over", "start all_reduce world", "wait all_reduce world",
         "wait all_reduce world", "wait all_reduce world", "wait all_reduce world"});
  });
}

}  // namespace
}  // namespace automodel::distributed

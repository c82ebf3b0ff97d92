// What every strategy sends in a step, counted at the groups: the tables of
// src/distributed/fsdp/README.md.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/ranks.h"
#include "distributed/counted_group.h"
#include "distributed/small_llama.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "distributed/toy_model.h"

namespace automodel::distributed {
namespace {

using comm::expect;
using comm::expect_ranks;
using comm::ProcessGroup;

void expect_calls(const char* what, const CallCounts& found, const CallCounts& wanted) {
  expect(found == wanted, cat(what, ": ", text_of(found), " instead of ", text_of(wanted)));
}

void step_of(ToyNet& net, Engine& engine, int num_micro) {
  for (int i = 0; i < num_micro; ++i) {
    engine.begin_micro_batch(i + 1 == num_micro);
    net.loss(toy_input(i)).backward();
    engine.end_micro_batch();
  }
  engine.reduce_gradients();
}

// Bytes over two ranks: blocks of 30, 5 and 30 elements on borders of 16, padded to ranges of 48,
// and a root of 6 in ranges of 16.
constexpr int64_t kToyBlock = 4 * 96, kToyRoot = 4 * 32, kToyLayers = 3;
constexpr int64_t kToyWhole = kToyLayers * kToyBlock + kToyRoot;

TEST(CollectivesTest, Fsdp2) {
  expect_ranks(2, [](comm::World& world) {
    for (const int64_t m : {1, 3}) {
      const CountedGroup group(world.group());
      ToyModel toy;
      ParallelizeOptions options;
      options.mp_policy = MixedPrecisionPolicy{.param_dtype = {}, .reduce_dtype = {}};
      const auto engine = fsdp2_strategy_parallelize(toy.model(), data_mesh(group.group), options);
      step_of(toy.net, *engine, static_cast<int>(m));
      const int64_t gathered =
          2 * kToyWhole - kToyBlock - kToyRoot;  // the last block, the root: once
      expect_calls("fsdp2", *group.counts,
                   {{"all_gather", {m * (2 * (kToyLayers - 1) + 2), m * gathered}},
                    {"reduce_scatter", {kToyLayers + 1, kToyWhole}}});
    }
  });
}

TEST(CollectivesTest, Hsdp) {
  expect_ranks(4, [](comm::World& world) {
    for (const int64_t m : {1, 3}) {
      const CountedGroup shard(world.split("dp_shard", {{0, 1}, {2, 3}}));
      const CountedGroup replicate(world.split("dp_replicate", {{0, 2}, {1, 3}}));
      const auto one = ProcessGroup::solo();
      const DeviceMesh mesh({{"dp_replicate", replicate.group},
                             {"dp_shard_cp", shard.group},
                             {"dp_cp", world.group()},
                             {"tp", one}});
      ToyModel toy;
      ParallelizeOptions options;
      options.mp_policy = MixedPrecisionPolicy{.param_dtype = {}, .reduce_dtype = {}};
      const auto engine = fsdp2_strategy_parallelize(toy.model(), mesh, options);
      step_of(toy.net, *engine, static_cast<int>(m));
      const int64_t gathered = 2 * kToyWhole - kToyBlock - kToyRoot;
      expect_calls("parts", *shard.counts,
                   {{"all_gather", {m * (2 * (kToyLayers - 1) + 2), m * gathered}},
                    {"reduce_scatter", {kToyLayers + 1, kToyWhole}}});
      expect_calls("replicas", *replicate.counts,
                   {{"all_reduce", {kToyLayers + 1, kToyWhole / 2}}});
    }
  });
}

TEST(CollectivesTest, MegatronFsdp) {
  struct Wanted {
    const char* strategy;
    std::function<CallCounts(int64_t)> counts;
  };
  const int64_t twice = 2 * kToyWhole - kToyRoot;
  const Wanted all[] = {
      {"no_shard",
       [](int64_t) {
         return CallCounts{{"all_reduce", {kToyLayers + 1, kToyWhole}}};
       }},
      {"optim",
       [](int64_t) {
         return CallCounts{{"all_gather", {kToyLayers + 1, kToyWhole}},
                           {"reduce_scatter", {kToyLayers + 1, kToyWhole}}};
       }},
      {"optim_grads",
       [](int64_t m) {
         return CallCounts{{"all_gather", {kToyLayers + 1, kToyWhole}},
                           {"reduce_scatter", {m * (kToyLayers + 1), m * kToyWhole}}};
       }},
      {"optim_grads_params", [twice](int64_t m) {
         return CallCounts{{"all_gather", {m * (2 * kToyLayers + 1), m * twice}},
                           {"reduce_scatter", {m * (kToyLayers + 1), m * kToyWhole}}};
       }}};
  expect_ranks(2, [&](comm::World& world) {
    for (const Wanted& wanted : all) {
      for (const int64_t m : {1, 3}) {
        const CountedGroup group(world.group());
        SilentReporter reporter;
        ToyModel toy;
        NvfsdpOptions options = toy_units();
        options.data_parallel_sharding_strategy = wanted.strategy;
        const auto engine =
            nvfsdp_strategy_parallelize(toy.model(), data_mesh(group.group), options, reporter);
        step_of(toy.net, *engine, static_cast<int>(m));
        CallCounts counts = wanted.counts(m);
        // Nothing is padded for ranges where there are none.
        if (std::string_view(wanted.strategy) == "no_shard") {
          counts["all_reduce"].bytes = 4 * (kToyLayers * 80 + 16);
        }
        expect_calls(wanted.strategy, *group.counts, counts);
      }
    }
  });
}

// Two sequences of 12 positions of 32 features in float32; two blocks and five norms.
constexpr int64_t kTokens = 24, kStream = 4 * kTokens * 32, kBlocks = 2, kNorms = 4 * 5 * 32;

/// Every rank's three numbers a token of the loss, on two ranks.
constexpr int64_t kLossNumbers = 4 * 2 * 3 * kTokens;

CallCounts calls_under_tp(const ProcessGroup& tp, int num_micro, bool sequence_parallel,
                          ActivationCheckpointingMode recomputes) {
  const auto one = ProcessGroup::solo();
  const CountedGroup counted(tp);
  const DeviceMesh mesh(
      {{"dp_replicate", one}, {"dp_shard_cp", one}, {"dp_cp", one}, {"tp", counted.group}});
  SmallLlama llama;
  ParallelizeOptions options;
  options.sequence_parallel = sequence_parallel;
  options.activation_checkpointing = recomputes;
  const auto engine = fsdp2_strategy_parallelize(llama.parallel(), mesh, options);
  fill_by_name(*engine);
  for (int i = 0; i < num_micro; ++i) {
    engine->begin_micro_batch(i + 1 == num_micro);
    llama.loss().backward();
    engine->end_micro_batch();
  }
  engine->reduce_gradients();
  return *counted.counts;
}

TEST(CollectivesTest, TensorParallel) {
  using Mode = ActivationCheckpointingMode;
  expect_ranks(2, [](comm::World& world) {
    for (const int64_t m : {1, 3}) {
      const int count = static_cast<int>(m);
      // Forward: the embedding, two a block. Backward: two a block, the loss. Norms once a step.
      const int64_t reductions = 4 * kBlocks + 2;
      expect_calls("tp", calls_under_tp(world.group(), count, false, Mode::kOff),
                   {{"all_reduce", {m * reductions + 1, m * reductions * kStream + kNorms}},
                    {"all_gather", {m, m * kLossNumbers}}});
      // A block's forward again: its second sum is recomputed too.
      const int64_t recomputed = 6 * kBlocks + 2;
      expect_calls("tp, recomputed", calls_under_tp(world.group(), count, false, Mode::kFull),
                   {{"all_reduce", {m * recomputed + 1, m * recomputed * kStream + kNorms}},
                    {"all_gather", {m, m * kLossNumbers}}});
    }
  });
}

TEST(CollectivesTest, SequenceParallel) {
  expect_ranks(2, [](comm::World& world) {
    for (const int64_t m : {1, 3}) {
      const int64_t each = 4 * kBlocks + 2;
      expect_calls("sp",
                   calls_under_tp(world.group(), static_cast<int>(m), true,
                                  ActivationCheckpointingMode::kOff),
                   {{"all_gather", {m * (each + 1), m * (each * kStream + kLossNumbers)}},
                    {"reduce_scatter", {m * each, m * each * kStream}},
                    {"all_reduce", {1, kNorms}}});
    }
  });
}

}  // namespace
}  // namespace automodel::distributed

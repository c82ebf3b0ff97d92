// Upstream's components.models.diffusion_gemma.fsdp: a test a row of its documentation
// (conformance.md), on the tiny DiffusionGemma of configs/.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "comm/ranks.h"
#include "distributed/counted_group.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/engine/moe_fsdp_mixin.h"
#include "distributed/fill_by_name.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/model_classes.h"
#include "distributed/recorded_training.h"
#include "distributed/strategies/diffusion_gemma_strategy.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "distributed/toy_model.h"
#include "models/diffusion_gemma/diffusion_model.h"
#include "models/golden_model.h"

namespace automodel::distributed {
namespace {

using comm::expect;
using comm::expect_ranks;
using comm::ProcessGroup;
using models::BlockDiffusionBatch;
using models::diffusion_gemma::DiffusionGemmaModel;
using Texts = std::vector<std::string>;

/// The tiny model without memory, and what a parallelizer is told of it.
struct TinyDiffusion {
  /// `changes`: keys of text_config.
  explicit TinyDiffusion(const std::map<std::string, int64_t>& changes = {}) {
    Json config = Json::parse_file(test::source_file("configs/tiny/diffusion_gemma/config.json"));
    Json text = config.at("text_config");
    for (const auto& [key, value] : changes) text[key] = value;
    config["text_config"] = text;
    model =
        std::dynamic_pointer_cast<DiffusionGemmaModel>(models::build_causal_lm(config, at::kFloat));
    model->train();
    const models::ModelDims dims = model->dims();
    facts = {model->architecture(), dims.num_heads,         dims.num_kv_heads,
             dims.vocab_size,       model->parallel_plan(), model->key_map()};
  }

  ParallelModel parallel() { return {*model, facts, {}, {}}; }

  torch::nn::Module& layer(int i) { return module_at(*model, cat("model.layers.", i)); }
  torch::nn::Module& experts(int i) {
    return module_at(*model, cat("model.layers.", i, ".moe.experts"));
  }

  /// Two texts of 20 tokens with canvases of two blocks, other ones for every `index`.
  static BlockDiffusionBatch batch(int64_t index) {
    const auto numbers = [&](int64_t count, int64_t offset) {
      return at::remainder(at::arange(2 * count).pow(2) * 7 + 31 * index + offset, 2048)
          .view({2, count});
    };
    BlockDiffusionBatch batch;
    batch.input_ids = numbers(20, 3);
    batch.text_labels = at::remainder(batch.input_ids * 5 + 1, 2048);
    batch.prefix_lengths = at::tensor({5, 8}, at::kLong);
    batch.response_lengths = at::tensor({15, 12}, at::kLong);
    batch.canvas_ids = numbers(15, 11);
    batch.canvas_labels = numbers(15, 17);
    batch.canvas_labels.narrow(1, 0, 8).fill_(-100);
    batch.canvas_labels[1].narrow(0, 12, 3).fill_(-100);
    batch.is_conditioned = at::tensor({1, 0}, at::kLong).ne(0);
    batch.block_size = 8;
    return batch;
  }

  at::Tensor loss(int64_t index) {
    return model->block_diffusion_loss(batch(index), {10.0, 40.0, 0.5}, -100).total;
  }

  std::shared_ptr<DiffusionGemmaModel> model;
  TpModel facts;
};

ParallelizeOptions float32_options() {
  ParallelizeOptions options;
  options.mp_policy = MixedPrecisionPolicy{.param_dtype = {}, .reduce_dtype = {}};
  return options;
}

std::unique_ptr<Engine> parallelized(TinyDiffusion& tiny, const ProcessGroup& group,
                                     bool has_strategy = true,
                                     const ParallelizeOptions& options = float32_options()) {
  StrategyRegistry registry;
  if (has_strategy) register_diffusion_gemma_parallel_strategy(registry);
  auto engine = fsdp2_strategy_parallelize(tiny.parallel(), data_mesh(group), options, registry);
  fill_by_name(*engine);
  return engine;
}

/// This rank's share of a step, reduced; returns the mean loss of the ranks' batches here.
double train_step(TinyDiffusion& tiny, Engine& engine, const std::vector<int64_t>& batches) {
  double sum = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    engine.begin_micro_batch(i + 1 == batches.size());
    const at::Tensor loss = tiny.loss(batches[i]);
    sum += loss.item<double>();
    loss.backward();
    engine.end_micro_batch();
  }
  engine.reduce_gradients();
  return sum;
}

ShardingGroups alone() {
  return ShardingGroups::of(ProcessGroup::solo());
}

/// fully_shard that writes down whom it was called for.
ShardFunction noted(std::vector<std::pair<torch::nn::Module*, ShardingOptions>>& calls) {
  return [&calls](torch::nn::Module& module, const ShardingGroups& groups,
                  const ShardingOptions& options) -> FSDPModule& {
    calls.emplace_back(&module, options);
    return fully_shard(module, groups, options);
  };
}

TEST(has_fsdp_state, IsTrueOfUnitsOnly) {
  TinyDiffusion tiny;
  EXPECT_FALSE(has_fsdp_state(tiny.layer(0)));
  fully_shard(tiny.layer(0), alone(), {});
  EXPECT_TRUE(has_fsdp_state(tiny.layer(0)));
  EXPECT_FALSE(has_fsdp_state(tiny.experts(0)));  // inside a unit, none itself
  EXPECT_FALSE(has_fsdp_state(*tiny.model));      // has no hook to be one
}

TEST(fully_shard_once, SkipsWhatIsAbsentOrWrappedAlready) {
  TinyDiffusion tiny;
  std::vector<std::pair<torch::nn::Module*, ShardingOptions>> calls;
  EXPECT_EQ(fully_shard_once(nullptr, alone(), {}, noted(calls)), nullptr);
  EXPECT_TRUE(calls.empty());
  EXPECT_EQ(fully_shard_once(&tiny.layer(0), alone(), {}, noted(calls)), &tiny.layer(0));
  ASSERT_EQ(calls.size(), 1u);
  FSDPModule* const unit = fsdp_module(tiny.layer(0));
  EXPECT_EQ(fully_shard_once(&tiny.layer(0), alone(), {}, noted(calls)), &tiny.layer(0));
  EXPECT_EQ(calls.size(), 1u);
  EXPECT_EQ(fsdp_module(tiny.layer(0)), unit);
}

TEST(fully_shard_once, ShardsOthersWithAllArguments) {
  TinyDiffusion tiny;
  ShardingOptions options;
  options.reshard_after_forward = false;
  options.param_dtype = at::kBFloat16;
  options.offload_policy = CPUOffloadPolicy{};
  fully_shard_once(&tiny.layer(0), alone(), options);
  const ShardingOptions& found = fsdp_module(tiny.layer(0))->options();
  EXPECT_EQ(found.reshard_after_forward, false);
  EXPECT_EQ(found.param_dtype, at::kBFloat16);
  EXPECT_TRUE(found.offload_policy.has_value());
}

TEST(fully_shard_diffusion_gemma, ShardsTheExpertsBeforeTheLayer) {
  TinyDiffusion tiny;
  std::vector<std::pair<torch::nn::Module*, ShardingOptions>> calls;
  ShardingOptions options;
  options.reshard_after_forward = false;
  EXPECT_EQ(&fully_shard_diffusion_gemma(tiny.layer(0), alone(), options, noted(calls)),
            &tiny.layer(0));
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].first, &tiny.experts(0));
  EXPECT_EQ(calls[1].first, &tiny.layer(0));
  for (const auto& [module, given] : calls) EXPECT_EQ(given.reshard_after_forward, false);
}

TEST(fully_shard_diffusion_gemma, WithoutMoeTheModuleIsShardedOnce) {
  ToyNet net;
  std::vector<std::pair<torch::nn::Module*, ShardingOptions>> calls;
  fully_shard_diffusion_gemma(net, alone(), {}, noted(calls));
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].first, &net);
}

TEST(fully_shard_diffusion_gemma, TheLayersUnitLeavesTheExpertsToTheirs) {
  TinyDiffusion tiny;
  fully_shard_diffusion_gemma(tiny.layer(1), alone(), {});
  std::set<std::string> of_experts;
  for (const UnitParameters& part : fsdp_module(tiny.experts(1))->parameters()) {
    for (const LayoutEntry& entry : part.layout.entries) of_experts.insert(entry.parameter);
  }
  EXPECT_THAT(of_experts, testing::ElementsAre("down_proj", "gate_up_proj"));
  for (const UnitParameters& part : fsdp_module(tiny.layer(1))->parameters()) {
    for (const LayoutEntry& entry : part.layout.entries) {
      EXPECT_FALSE(entry.parameter.starts_with("moe.experts")) << entry.parameter;
    }
  }
}

TEST(fully_shard_diffusion_gemma, EveryRankHoldsAnEqualRangeOfTheExperts) {
  expect_ranks(2, [](comm::World& world) {
    TinyDiffusion tiny;
    fully_shard_diffusion_gemma(tiny.layer(0), ShardingGroups::of(world.group()), {});
    const UnitParameters& part = fsdp_module(tiny.experts(0))->parameters().at(0);
    const int64_t half = part.layout.numel / 2;
    expect(part.range_begin == half * world.group().rank(), cat("begins at ", part.range_begin));
    expect(part.values.numel() == half, cat(part.values.numel(), " of ", part.layout.numel));
  });
}

TEST(register_diffusion_gemma_parallel_strategy, IsIdempotentAndKeyedByTheModelsClass) {
  StrategyRegistry registry;
  EXPECT_FALSE(registry.has("DiffusionGemmaForBlockDiffusion"));
  register_diffusion_gemma_parallel_strategy(registry);
  const auto& first = registry.get_parallelization_strategy("DiffusionGemmaForBlockDiffusion");
  register_diffusion_gemma_parallel_strategy(registry);
  const auto& second = registry.get_parallelization_strategy("DiffusionGemmaForBlockDiffusion");
  EXPECT_EQ(&first, &second);
  EXPECT_NE(&first, &registry.get_parallelization_strategy("Gemma3ForCausalLM"));
}

TEST(register_diffusion_gemma_parallel_strategy, IsADefaultStrategyWithAnotherShardFunction) {
  StrategyRegistry registry;
  register_diffusion_gemma_parallel_strategy(registry);
  const auto& strategy = registry.get_parallelization_strategy("DiffusionGemmaForBlockDiffusion");
  EXPECT_NE(dynamic_cast<const DefaultParallelizationStrategy*>(&strategy), nullptr);
  expect_ranks(2, [](comm::World& world) {
    TinyDiffusion tiny;
    const auto engine = parallelized(tiny, world.group());
    Texts kept, freed;
    for (const FSDPModule* unit : sharded(*engine).root().tree_units()) {
      (unit->options().reshard_after_forward == true ? freed : kept).push_back(unit->name());
    }
    expect(kept == Texts{"", "model.layers.3", "model.layers.3.moe.experts"}, join(kept, ","));
    expect(freed.size() == 6, join(freed, ","));
  });
}

TEST(DiffusionGemmaUnits, WithSplitExpertsTheDefaultFlowMakesThem) {
  expect_ranks(2, [](comm::World& world) {
    const auto one = ProcessGroup::solo();
    const DeviceMesh mesh({{"dp_replicate", one},
                           {"dp_shard_cp", world.group()},
                           {"dp_cp", world.group()},
                           {"dp", world.group()},
                           {"cp", one},
                           {"tp", one},
                           {"ep_shard", one},
                           {"ep", world.group()}});
    TinyDiffusion tiny;
    StrategyRegistry registry;
    register_diffusion_gemma_parallel_strategy(registry);
    const auto engine =
        fsdp2_strategy_parallelize(tiny.parallel(), mesh, float32_options(), registry);
    fill_by_name(*engine);
    TinyDiffusion whole;
    const auto sharded_whole = parallelized(whole, world.group());
    const std::vector<int64_t> batches = {world.group().rank(), world.group().rank() + 2};
    const double found = train_step(tiny, *engine, batches);
    const double wanted = train_step(whole, *sharded_whole, batches);
    expect(std::abs(found - wanted) < 1e-6 * wanted, cat(found, " is not ", wanted));
    const double norm = engine->gradient_norm();
    const double wanted_norm = sharded_whole->gradient_norm();
    expect(std::abs(norm - wanted_norm) < 1e-5 * wanted_norm, cat(norm, " is not ", wanted_norm));
  });
}

TEST(DiffusionGemmaUnits, ExpertsKeepTheirGlobalShapeOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 4}) {
    expect_ranks(ranks, [](comm::World& world) {
      TinyDiffusion tiny;
      const auto engine = parallelized(tiny, world.group());
      int64_t held = 0;
      for (const tensor::FlatShard& shard : engine->parameters()) {
        for (const tensor::FlatSegment& segment : shard.segments) {
          if (segment.fqn != "model.decoder.layers.0.experts.down_proj") continue;
          expect(segment.spec.global_shape == std::vector<int64_t>{8, 48, 32}, "shape");
          held += segment.spec.numel();
        }
      }
      at::Tensor total = at::tensor({held}, at::kLong);
      world.group().all_reduce(total, comm::ReduceOp::kSum);
      expect(total.item<int64_t>() == 8 * 48 * 32, cat(total.item<int64_t>(), " elements"));
    });
  }
}

TEST(DiffusionGemmaUnits, AStepOnTwoRanksIsTheSingleRanksByGathersAndReductionsAlone) {
  double single_norm = 0;
  double single_loss = 0;
  {
    TinyDiffusion tiny;
    const auto engine = parallelized(tiny, ProcessGroup::solo());
    for (const int64_t batch : {0, 1, 2, 3}) {
      engine->begin_micro_batch(batch == 3);
      const at::Tensor loss = tiny.loss(batch) / 2.0;
      single_loss += loss.item<double>();
      loss.backward();
      engine->end_micro_batch();
    }
    single_norm = engine->gradient_norm();
  }
  expect_ranks(2, [&](comm::World& world) {
    CountedGroup counted(world.group());
    const auto one = ProcessGroup::solo();
    TinyDiffusion tiny;
    const auto engine = parallelized(tiny, counted.group);
    counted.counts->clear();
    const int64_t rank = world.group().rank();
    double loss = train_step(tiny, *engine, {rank, rank + 2});
    const CallCounts counts = *counted.counts;
    expect(counts.size() == 2 && counts.contains("all_gather") && counts.contains("reduce_scatter"),
           text_of(counts));
    // The root, and of each of four layers and their experts one for either pass.
    expect(counts.at("reduce_scatter").calls == 17, text_of(counts));
    const double norm = engine->gradient_norm();
    at::Tensor sum = at::tensor({loss}, at::kDouble);
    world.group().all_reduce(sum, comm::ReduceOp::kSum);
    expect(std::abs(sum.item<double>() / 2 - single_loss) < 1e-6 * single_loss,
           cat("loss ", sum.item<double>() / 2, " is not ", single_loss));
    expect(std::abs(norm - single_norm) < 1e-5 * single_norm,
           cat("norm ", norm, " is not ", single_norm));
  });
}

TEST(DiffusionGemmaUnits, RecomputedLayersGiveTheSameGradients) {
  expect_ranks(2, [](comm::World& world) {
    std::vector<double> norms;
    for (const auto mode : {ActivationCheckpointingMode::kOff, ActivationCheckpointingMode::kFull,
                            ActivationCheckpointingMode::kSelective}) {
      TinyDiffusion tiny;
      ParallelizeOptions options = float32_options();
      options.activation_checkpointing = mode;
      const auto engine = parallelized(tiny, world.group(), true, options);
      train_step(tiny, *engine, {world.group().rank(), world.group().rank() + 2});
      norms.push_back(engine->gradient_norm());
    }
    for (const double norm : norms) {
      expect(std::abs(norm - norms[0]) < 1e-6 * norms[0], cat(norm, " is not ", norms[0]));
    }
  });
}

/// The most bytes of gathered parameters and whole gradients at one time, from the units' events.
int64_t peak_of_units(TinyDiffusion& tiny, ShardedEngine& engine, int64_t rank) {
  FSDPModule& root = engine.root();
  std::map<std::string, std::pair<int64_t, int64_t>> sizes;
  for (const FSDPModule* unit : root.tree_units()) {
    for (const UnitParameters& part : unit->parameters()) {
      sizes[unit->name()].first += part.layout.numel * 4;
      sizes[unit->name()].second += part.is_trained ? part.layout.numel * 4 : 0;
    }
  }
  train_step(tiny, engine, {rank});  // the last layer is kept from step to step
  root.clear_events();
  train_step(tiny, engine, {rank});
  std::map<std::string, int64_t> parameters, gradients;
  int64_t peak = 0;
  for (const UnitEvent& event : root.events()) {
    const std::string unit(event.unit);
    switch (event.what) {
      case UnitTransition::kGather:
      case UnitTransition::kUnsharded:
      case UnitTransition::kForward:
        parameters[unit] = sizes[unit].first;
        break;
      case UnitTransition::kReshard:
        parameters[unit] = 0;
        break;
      case UnitTransition::kBackward:
        gradients[unit] = sizes[unit].second;
        break;
      case UnitTransition::kReduce:
        break;
      case UnitTransition::kReduced:
        gradients[unit] = 0;
        break;
    }
    int64_t now = 0;
    for (const auto& [name, bytes] : parameters) now += bytes;
    for (const auto& [name, bytes] : gradients) now += bytes;
    peak = std::max(peak, now);
  }
  return peak;
}

TEST(DiffusionGemmaUnits, ExpertsOfTheirOwnLowerThePeakOfTheDoublePass) {
  expect_ranks(2, [](comm::World& world) {
    // As in the 26B model, nine tenths of a layer are experts.
    const std::map<std::string, int64_t> sizes = {
        {"hidden_size", 192}, {"num_experts", 16}, {"moe_intermediate_size", 128}};
    const int64_t experts = 16 * 128 * 3 * 192 * 4;
    std::vector<int64_t> peaks;
    for (const bool has_strategy : {false, true}) {
      TinyDiffusion tiny(sizes);
      const auto engine = parallelized(tiny, world.group(), has_strategy);
      peaks.push_back(peak_of_units(tiny, sharded(*engine), world.group().rank()));
    }
    // While a layer's gradients are reduced, the next one's are computed: apart from its experts
    // that is a small rest.
    expect(peaks[0] - peaks[1] > experts * 9 / 10, cat(peaks[0], " bytes become ", peaks[1]));
  });
}

TEST(DiffusionGemmaUnits, EveryPlacementAveragesTheGradientsOfBothPassesOnce) {
  expect_ranks(2, [](comm::World& world) {
    const std::vector<int64_t> batches = {world.group().rank(), world.group().rank() + 2};
    TinyDiffusion wanted;
    const auto engine = parallelized(wanted, world.group());
    train_step(wanted, *engine, batches);
    const double norm = engine->gradient_norm();
    for (const char* strategy : {"optim", "optim_grads", "params", "optim_grads_params"}) {
      TinyDiffusion tiny;
      NvfsdpOptions options =
          nvfsdp_options({}, tiny.parallel().facts.architecture, model_classes());
      options.data_parallel_sharding_strategy = strategy;
      SilentReporter reporter;
      const auto placed =
          nvfsdp_strategy_parallelize(tiny.parallel(), data_mesh(world.group()), options, reporter);
      fill_by_name(*placed);
      train_step(tiny, *placed, batches);
      expect(std::abs(placed->gradient_norm() - norm) < 1e-5 * norm,
             cat(strategy, ": ", placed->gradient_norm(), " is not ", norm));
    }
  });
}

TEST(DiffusionGemmaUnits, OverStreamsValuesAreTheSameToTheBit) {
  comm::expect_rank_threads(2, [](comm::World& world) {
    for (const bool keeps : {false, true}) {
      for (const auto mode :
           {ActivationCheckpointingMode::kOff, ActivationCheckpointingMode::kFull}) {
        comm::expect_same_when_recorded(world, cat("kept ", keeps), [&](const comm::Groups& over) {
          TinyDiffusion tiny;
          ParallelizeOptions options = float32_options();
          options.enable_fsdp_optimizations = keeps;
          options.activation_checkpointing = mode;
          const auto engine = parallelized(tiny, over(world.group()), true, options);
          return values_of_a_step(
              *engine, 2, [&](int number) { return tiny.loss(world.group().rank() + 2 * number); });
        });
      }
    }
  });
}

TEST(DiffusionGemmaUnits, TheMixinFindsTheModelAndTheExpertsOfEveryLayer) {
  expect_ranks(2, [](comm::World& world) {
    TinyDiffusion tiny;
    const auto engine = parallelized(tiny, world.group());
    Texts names;
    for (const FSDPModule* unit : iter_fsdp_modules(*tiny.model)) names.push_back(unit->name());
    Texts wanted = {""};
    for (int i = 0; i < 4; ++i) wanted.push_back(cat("model.layers.", i, ".moe.experts"));
    expect(names == wanted, join(names, ","));
  });
}

TEST(DiffusionGemmaUnits, UnshardingTheModelGathersNormsAndTheTiedEmbeddingToo) {
  expect_ranks(2, [](comm::World& world) {
    TinyDiffusion tiny, whole;
    const auto engine = parallelized(tiny, world.group());
    const auto plain = parallelized(whole, ProcessGroup::solo());
    unshard_fsdp2_model(*tiny.model, [&] {
      const auto found = tiny.model->named_parameters();
      for (const auto& item : whole.model->named_parameters()) {
        expect(at::equal(item.value(), found[item.key()]), item.key());
      }
    });
  });
}

TEST(DiffusionGemmaUnits, KeptBetweenMicroBatchesUnitsReduceOnceAPass) {
  expect_ranks(2, [](comm::World& world) {
    std::vector<double> norms;
    std::vector<int64_t> gathers;
    for (const bool keeps : {false, true}) {
      CountedGroup counted(world.group());
      TinyDiffusion tiny;
      ParallelizeOptions options = float32_options();
      options.enable_fsdp_optimizations = keeps;
      const auto engine = parallelized(tiny, counted.group, true, options);
      counted.counts->clear();
      train_step(tiny, *engine, {world.group().rank(), world.group().rank() + 2});
      expect(counted.counts->at("reduce_scatter").calls == 17, text_of(*counted.counts));
      gathers.push_back(counted.counts->at("all_gather").calls);
      norms.push_back(engine->gradient_norm());
    }
    expect(gathers[1] < gathers[0], cat(gathers[1], " gathers, ", gathers[0], " without"));
    expect(std::abs(norms[0] - norms[1]) < 1e-6 * norms[0], cat(norms[0], " ", norms[1]));
  });
}

}  // namespace
}  // namespace automodel::distributed

#include "distributed/strategies/parallelizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/ranks.h"
#include "distributed/model_classes.h"
#include "distributed/small_llama.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "distributed/toy_model.h"
#include "support/errors.h"

namespace automodel::distributed {
namespace {

using comm::expect;
using comm::expect_ranks;
using comm::ProcessGroup;
using Texts = std::vector<std::string>;

TEST(Fsdp2StrategyParallelize, ShardsLayersAndRootAndTrainsAsThePlainModel) {
  double plain = 0;
  {
    ToyNet net;
    net.loss(toy_input(0)).backward();
    for (const at::Tensor& value : net.parameters())
      plain += value.grad().pow(2).sum().item<double>();
  }
  expect_ranks(2, [&](comm::World& world) {
    ToyModel toy;
    ParallelizeOptions options;
    options.mp_policy = MixedPrecisionPolicy{.param_dtype = {}, .reduce_dtype = {}};
    const auto engine = fsdp2_strategy_parallelize(toy.model(), data_mesh(world.group()), options);
    expect(sharded(*engine).root().tree_units().size() == 4, "units");
    const double norm = norm_of_a_step(toy.net, *engine);
    expect(std::abs(norm - std::sqrt(plain)) < 2e-6 * norm, cat("norm ", norm));
  });
}

TEST(Fsdp2StrategyParallelize, AllLayersButTheLastReshardAndTheRootDoesNot) {
  expect_ranks(2, [](comm::World& world) {
    ToyModel toy;
    const auto engine = fsdp2_strategy_parallelize(toy.model(), data_mesh(world.group()), {});
    Texts found;
    for (const FSDPModule* unit : sharded(*engine).root().tree_units()) {
      found.push_back(unit->options().reshard_after_forward == true ? "reshard" : "keep");
    }
    expect(found == Texts{"keep", "reshard", "reshard", "keep"}, cat(found[0], found[1], found[2]));
  });
}

TEST(Fsdp2StrategyParallelize, WithoutAPolicyParametersAreBfloat16AndReductionsFloat32) {
  expect_ranks(2, [](comm::World& world) {
    ToyModel toy;
    const auto engine = fsdp2_strategy_parallelize(toy.model(), data_mesh(world.group()), {});
    for (const FSDPModule* unit : sharded(*engine).root().tree_units()) {
      expect(unit->options().param_dtype == at::kBFloat16, "param_dtype");
      expect(unit->options().reduce_dtype == at::kFloat, "reduce_dtype");
      expect(!unit->options().output_dtype && !unit->options().casts_inputs, "casts");
    }
    expect(toy.net.parameters()[0].scalar_type() == at::kBFloat16, "gathered dtype");
    expect(engine->parameters()[0].buffer.scalar_type() == at::kFloat, "stored dtype");
  });
}

TEST(Fsdp2StrategyParallelize, InputsAreCastUnlessThePolicySaysOtherwise) {
  expect_ranks(2, [](comm::World& world) {
    for (const bool casts : {true, false}) {
      ToyModel toy;
      ParallelizeOptions options;
      options.mp_policy =
          MixedPrecisionPolicy{.param_dtype = "bfloat16", .cast_forward_inputs = casts};
      const auto engine =
          fsdp2_strategy_parallelize(toy.model(), data_mesh(world.group()), options);
      for (const FSDPModule* unit : sharded(*engine).root().tree_units()) {
        expect(unit->options().casts_inputs == casts, unit->name());
      }
    }
  });
}

/// Hears in which dtype a model wants its logits.
class ListeningHead final : public nn::LossHead {
 public:
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor&,
                  const kernels::CrossEntropyOptions& options) override {
    logits_dtype = options.logits_dtype;
    return at::linear(hidden, weight).sum();
  }
  std::shared_ptr<const kernels::VocabularyRows> rows() const override {
    return kernels::whole_vocabulary();
  }

  std::optional<at::ScalarType> logits_dtype;
};

TEST(Fsdp2StrategyParallelize, LogitsHaveThePolicysOutputDtype) {
  expect_ranks(2, [](comm::World& world) {
    for (const bool is_named : {true, false}) {
      SmallLlama llama;
      ParallelizeOptions options;
      options.mp_policy = MixedPrecisionPolicy{};
      if (is_named) options.mp_policy->output_dtype = "bfloat16";
      const auto engine =
          fsdp2_strategy_parallelize(llama.parallel(), data_mesh(world.group()), options);
      fill_by_name(*engine);
      const auto head = std::make_shared<ListeningHead>();
      llama.model->set_loss_head(head);
      norm_of_micro_batches(llama, *engine);
      expect(head->logits_dtype.has_value() == is_named, "a dtype");
      expect(!is_named || head->logits_dtype == at::kBFloat16, "bfloat16");
    }
  });
}

TEST(Fsdp2StrategyParallelize, OffloadPolicyReachesEveryUnitAndTheRoot) {
  expect_ranks(2, [](comm::World& world) {
    ToyModel toy;
    ParallelizeOptions options;
    options.offload_policy = CPUOffloadPolicy{};
    const auto engine = fsdp2_strategy_parallelize(toy.model(), data_mesh(world.group()), options);
    for (const FSDPModule* unit : sharded(*engine).root().tree_units()) {
      expect(unit->options().offload_policy.has_value(), "policy");
      expect(unit->parameters()[0].values.is_cpu(), "residence");
    }
  });
}

TEST(Fsdp2StrategyParallelize, CustomMeshNamesAreOnlyNames) {
  expect_ranks(2, [](comm::World& world) {
    const auto one = ProcessGroup::solo();
    const DeviceMesh mesh(
        {{"copies", one}, {"parts", world.group()}, {"all", world.group()}, {"tensor", one}});
    ToyModel toy;
    ParallelizeOptions options;
    options.dp_replicate_mesh_name = "copies";
    options.dp_shard_cp_mesh_name = "parts";
    options.dp_mesh_name = "all";
    options.tp_mesh_name = "tensor";
    const auto engine = fsdp2_strategy_parallelize(toy.model(), mesh, options);
    expect(engine->held_part().count == 2, "parts");
  });
}

TEST(Fsdp2StrategyParallelize, AnAxisThatTheMeshLacksIsNamed) {
  ToyModel toy;
  const DeviceMesh mesh({{"tp", ProcessGroup::solo()}, {"dp_cp", ProcessGroup::solo()}});
  EXPECT_EQ(test::error_of<UserError>([&] { fsdp2_strategy_parallelize(toy.model(), mesh, {}); }),
            "the mesh has no axis 'dp_shard_cp'; it has dp_cp, tp");
}

TEST(Fsdp2StrategyParallelize, AMeshOfOneIsNotSharded) {
  ToyModel toy;
  const auto engine = fsdp2_strategy_parallelize(toy.model(), data_mesh(ProcessGroup::solo()), {});
  EXPECT_EQ(dynamic_cast<ShardedEngine*>(engine.get()), nullptr);
  EXPECT_EQ(engine->parameters()[0].buffer.scalar_type(), at::kFloat);
}

/// Counts what it is asked to do.
class CountingStrategy final : public DefaultParallelizationStrategy {
 public:
  explicit CountingStrategy(int& calls) : calls_(calls) {}
  std::unique_ptr<Engine> parallelize(const ParallelModel& model, const DeviceMesh& mesh,
                                      const ParallelizeOptions& options) const override {
    calls_ += 1;
    return DefaultParallelizationStrategy::parallelize(model, mesh, options);
  }

 private:
  int& calls_;
};

TEST(RegisterParallelStrategy, TheModelsClassChoosesAndOthersShareTheDefault) {
  int calls = 0;
  StrategyRegistry registry;
  registry.register_parallel_strategy("SpecialForCausalLM",
                                      std::make_unique<CountingStrategy>(calls));
  const DeviceMesh mesh = data_mesh(ProcessGroup::solo());
  ToyModel other;
  fsdp2_strategy_parallelize(other.model(), mesh, {}, registry);
  EXPECT_EQ(calls, 0);
  ToyModel special("SpecialForCausalLM");
  fsdp2_strategy_parallelize(special.model(), mesh, {}, registry);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(&registry.get_parallelization_strategy("A"),
            &registry.get_parallelization_strategy("B"));
}

/// Counts what it is asked to do, whatever the strategy.
template <typename Options>
class CountingOf final : public StrategyOf<Options> {
 public:
  explicit CountingOf(int& calls) : calls_(calls) {}
  std::unique_ptr<Engine> parallelize(const ParallelModel&, const DeviceMesh&,
                                      const Options&) const override {
    calls_ += 1;
    return nullptr;
  }
  PlannedUnits planned_units(const ParallelModel&, const Options&) const override { return {}; }

 private:
  int& calls_;
};

TEST(RegisterParallelStrategy, ChoosesForAllThreeStrategies) {
  int fsdp2 = 0, megatron = 0, ddp = 0;
  StrategyRegistry registry;
  const std::string name = "SpecialForCausalLM";
  registry.register_parallel_strategy(name, std::make_unique<CountingStrategy>(fsdp2));
  registry.register_parallel_strategy(name, std::make_unique<CountingOf<NvfsdpOptions>>(megatron));
  registry.register_parallel_strategy(name, std::make_unique<CountingOf<ReplicaOptions>>(ddp));
  const DeviceMesh mesh = data_mesh(ProcessGroup::solo());
  SilentReporter reporter;
  for (const std::string& architecture : {name, std::string("OtherForCausalLM")}) {
    const int wanted = architecture == name ? 1 : 0;
    fsdp2 = megatron = ddp = 0;
    ToyModel one(architecture), two(architecture), three(architecture);
    fsdp2_strategy_parallelize(one.model(), mesh, {}, registry);
    nvfsdp_strategy_parallelize(two.model(), mesh, {}, reporter, registry);
    ddp_strategy_parallelize(three.model(), mesh, {}, registry);
    EXPECT_EQ((std::vector<int>{fsdp2, megatron, ddp}), (std::vector<int>(3, wanted)));
  }
}

TEST(RegisterParallelStrategy, NamesAreRequiredAndFree) {
  StrategyRegistry registry;
  const auto add = [&](const std::string& name) {
    return test::error_of<UserError>([&] {
      registry.register_parallel_strategy(name, std::make_unique<DefaultParallelizationStrategy>());
    });
  };
  EXPECT_EQ(add(""), "name is required");
  EXPECT_EQ(add("A"), "no error");
  EXPECT_EQ(add("A"), "A already registered");
  EXPECT_EQ(test::error_of<UserError>([&] {
              registry.register_parallel_strategy("B", std::unique_ptr<ReplicaStrategy>());
            }),
            "B: a strategy is required");
}

TEST(NvfsdpStrategyParallelize, EveryStrategyGivesTheSameNormAndItsPlacements) {
  expect_ranks(2, [](comm::World& world) {
    SilentReporter reporter;
    std::vector<double> norms;
    for (const char* name :
         {"no_shard", "optim", "optim_grads", "optim_grads_params", "params", "grads_params"}) {
      ToyModel toy;
      NvfsdpOptions options = toy_units();
      options.data_parallel_sharding_strategy = name;
      const auto engine =
          nvfsdp_strategy_parallelize(toy.model(), data_mesh(world.group()), options, reporter);
      norms.push_back(norm_of_a_step(toy.net, *engine));
      expect(std::abs(norms.back() - norms[0]) < 2e-6 * norms[0], name);
      expect(engine->held_part().count == (std::string(name) == "no_shard" ? 1 : 2), name);
    }
  });
}

TEST(NvfsdpStrategyParallelize, AnUnknownStrategyIsRefused) {
  NvfsdpOptions options;
  options.data_parallel_sharding_strategy = "all";
  EXPECT_EQ(test::error_of<UserError>([&] { nvfsdp_sharding(options); }),
            "unknown data_parallel_sharding_strategy 'all': one of no_shard, optim, optim_grads, "
            "optim_grads_params, params, grads_params");
}

TEST(NvfsdpStrategyParallelize, TheDefaultsAreThoseOfTheSeed) {
  const NvfsdpOptions options;
  EXPECT_FALSE(options.optimizer);
  EXPECT_FALSE(options.config.megatron_fsdp_unit_modules);
  EXPECT_EQ(data_parallel_sharding_strategy(options), "optim_grads_params");
  EXPECT_FALSE(options.config.init_fsdp_with_meta_device || options.config.grad_reduce_in_fp32 ||
               options.config.preserve_fp32_weights || options.config.average_in_collective ||
               options.config.disable_bucketing || options.config.calculate_per_token_loss ||
               options.config.keep_fp8_transpose_cache || options.config.nccl_ub ||
               options.config.fsdp_double_buffer);
  EXPECT_TRUE(options.config.overlap_grad_reduce && options.config.overlap_param_gather &&
              options.config.check_for_nan_in_grad);
  EXPECT_EQ(options.dp_mesh_name + options.cp_mesh_name + options.tp_mesh_name, "dpcptp");
}

TEST(NvfsdpStrategyParallelize, FlagsBecomeDtypesScalingsAndOverlaps) {
  NvfsdpOptions options;
  options.config.grad_reduce_in_fp32 = true;
  options.config.preserve_fp32_weights = true;
  EXPECT_EQ(nvfsdp_sharding(options).reduce_dtype, at::kFloat);
  EXPECT_EQ(nvfsdp_sharding(options).gradient_dtype, at::kFloat);
  EXPECT_EQ(nvfsdp_sharding(options).main_dtype, at::kFloat);
  EXPECT_EQ(nvfsdp_sharding(options).scaling, GradientScaling::kDivideThenSum);
  options.config.average_in_collective = true;
  EXPECT_EQ(nvfsdp_sharding(options).scaling, GradientScaling::kAverage);
  options.config.calculate_per_token_loss = true;
  EXPECT_EQ(nvfsdp_sharding(options).scaling, GradientScaling::kSum);
  options.config.overlap_grad_reduce = options.config.overlap_param_gather = false;
  EXPECT_TRUE(nvfsdp_sharding(options).overlaps_reductions);  // forced with parameters sharded
  EXPECT_EQ(nvfsdp_sharding(options).forward_prefetch_depth, 1);
  options.data_parallel_sharding_strategy = "optim";
  EXPECT_FALSE(nvfsdp_sharding(options).overlaps_reductions);
  EXPECT_EQ(nvfsdp_sharding(options).forward_prefetch_depth, 0);
}

TEST(NvfsdpStrategyParallelize, OverlappedGathersAreStartedBeforeTheUnitAheadRuns) {
  // "optim_grads_params" overlaps whatever is asked for.
  const Texts overlapped = {"gather root",      "forward root",     "gather layers.0",
                            "gather layers.1",  "forward layers.0", "gather layers.2",
                            "forward layers.1", "forward layers.2"};
  const Texts waiting = {"gather root",      "forward root",    "gather layers.0",
                         "forward layers.0", "gather layers.1", "forward layers.1",
                         "gather layers.2",  "forward layers.2"};
  expect_ranks(2, [&](comm::World& world) {
    for (const char* strategy : {"optim", "optim_grads_params"}) {
      for (const bool overlaps : {false, true}) {
        NvfsdpOptions options = toy_units();
        options.data_parallel_sharding_strategy = strategy;
        options.config.overlap_param_gather = overlaps;
        SilentReporter reporter;
        ToyModel toy;
        const auto engine =
            nvfsdp_strategy_parallelize(toy.model(), data_mesh(world.group()), options, reporter);
        engine->parameters_changed();
        sharded(*engine).root().clear_events();
        const at::NoGradGuard no_grad;
        toy.net.forward(toy_input(0));
        const Texts found = only(take_events(sharded(*engine).root()), {"gather", "forward"});
        const bool is_forced = std::string(strategy) != "optim";
        expect(found == (overlaps || is_forced ? overlapped : waiting),
               cat(strategy, ": ", join(found, ", ")));
      }
    }
  });
}

TEST(NvfsdpStrategyParallelize, ContextParallelRanksMakeDpCpTheAxis) {
  expect_ranks(2, [](comm::World& world) {
    const auto one = ProcessGroup::solo();
    const DeviceMesh mesh(
        {{"dp", one}, {"cp", world.group()}, {"dp_cp", world.group()}, {"tp", one}});
    SilentReporter reporter;
    ToyModel toy;
    const auto engine = nvfsdp_strategy_parallelize(toy.model(), mesh, {}, reporter);
    expect(engine->held_part().count == 2, "parts");
  });
}

TEST(NvfsdpStrategyParallelize, ReplicasAreRefused) {
  expect_ranks(2, [](comm::World& world) {
    const auto one = ProcessGroup::solo();
    const DeviceMesh mesh(
        {{"dp", world.group()}, {"dp_replicate", world.group()}, {"cp", one}, {"tp", one}});
    SilentReporter reporter;
    ToyModel toy;
    const std::string text = test::error_of<UserError>(
        [&] { nvfsdp_strategy_parallelize(toy.model(), mesh, {}, reporter); });
    expect(text == "Hybrid-sharding not supported", text);
  });
}

TEST(NvfsdpStrategyParallelize, AnOptimizerIsMadeOnTheShards) {
  ToyModel toy;
  SilentReporter reporter;
  NvfsdpOptions options;
  const Engine* seen = nullptr;
  options.optimizer = [&](Engine& engine) { seen = &engine; };
  const auto engine =
      nvfsdp_strategy_parallelize(toy.model(), data_mesh(ProcessGroup::solo()), options, reporter);
  EXPECT_EQ(seen, engine.get());
}

TEST(NvfsdpStrategyParallelize, UnitModulesMustBeTheModels) {
  test::Warnings warnings;
  NvfsdpOptions options;
  options.classes = model_classes();
  options.config.megatron_fsdp_unit_modules = {
      {"transformers.models.llama.modeling_llama.LlamaDecoderLayer"}};
  ToyModel llama("LlamaForCausalLM");
  nvfsdp_strategy_parallelize(llama.model(), data_mesh(ProcessGroup::solo()), options, warnings);
  ToyModel qwen("Qwen3ForCausalLM");
  EXPECT_EQ(
      test::error_of<UserError>([&] {
        nvfsdp_strategy_parallelize(qwen.model(), data_mesh(ProcessGroup::solo()), options,
                                    warnings);
      }),
      "none of the unit modules is in Qwen3ForCausalLM, whose layers are of class "
      "transformers.models.qwen3.modeling_qwen3.Qwen3DecoderLayer; without the key the layers "
      "are units, and [] makes the whole model one");
  EXPECT_EQ(warnings.texts,
            (Texts{"unit module transformers.models.llama.modeling_llama.LlamaDecoderLayer: no "
                   "module of Qwen3ForCausalLM (layer)"}));
  options.config.megatron_fsdp_unit_modules = {{"torch.nn.Embedding"}};
  EXPECT_EQ(test::error_of<UserError>([&] {
              nvfsdp_strategy_parallelize(llama.model(), data_mesh(ProcessGroup::solo()), options,
                                          warnings);
            }),
            "torch.nn.Embedding cannot be a unit of LlamaForCausalLM, whose embedding is its "
            "output head too");
}

TEST(ImportClassFromPath, TheTableThatIsHandedInSaysWhatThereIs) {
  ClassTable table = module_classes();
  EXPECT_EQ(test::error_of<UserError>([&] { import_class_from_path("torch.optim.AdamW", table); }),
            "no class torch.optim.AdamW");
  table.add({"torch.optim.AdamW", "AdamW", "optimizer", ""}, {"torch.optim.adamw.AdamW"});
  table.add({"flashoptim.FlashAdamW", "FlashAdamW", "optimizer", "use torch.optim.AdamW"});
  for (const char* path : {"torch.optim.AdamW", "torch.optim.adamw.AdamW"}) {
    const ImportedClass found = import_class_from_path(path, table);
    EXPECT_EQ(found.path, "torch.optim.AdamW");
    EXPECT_EQ(found.name, "AdamW");
    EXPECT_EQ(found.kind, "optimizer");
  }
  EXPECT_EQ(test::error_of<UnsupportedError>(
                [&] { import_class_from_path("flashoptim.FlashAdamW", table); }),
            "flashoptim.FlashAdamW is not in this version: use torch.optim.AdamW");
  EXPECT_EQ(test::error_of<UserError>([&] { import_class_from_path("my.own.AdamW", table); }),
            "no class my.own.AdamW; did you mean 'torch.optim.AdamW'?");
}

TEST(ImportClassFromPath, KnownClassesAreFoundAndOthersSaidToBeUnknown) {
  EXPECT_EQ(
      import_class_from_path("transformers.models.gpt2.modeling_gpt2.GPT2Block", model_classes())
          .name,
      "GPT2Block");
  EXPECT_EQ(test::error_of<UserError>([] { import_class_from_path("Block", module_classes()); }),
            "'Block' is no path of a class: expected module.Class");
  EXPECT_EQ(test::error_of<UserError>([] {
              import_class_from_path("transformers.models.llama.modeling_llama.LlamaDecoderLaye",
                                     model_classes());
            }),
            "no class transformers.models.llama.modeling_llama.LlamaDecoderLaye; did you mean "
            "'transformers.models.llama.modeling_llama.LlamaDecoderLayer'?");
}

TEST(ImportClassesFromPaths, FailingEntriesAreLeftOutWithAWarning) {
  test::Warnings warnings;
  const auto classes = import_classes_from_paths(
      {"transformers.models.qwen3.modeling_qwen3.Qwen3DecoderLayer", "a.b.C",
       "transformers.models.llama.modeling_llama.LlamaDecoderLayer"},
      warnings, model_classes());
  ASSERT_EQ(classes.size(), 2u);
  EXPECT_EQ(classes[0].name, "Qwen3DecoderLayer");
  EXPECT_EQ(classes[1].name, "LlamaDecoderLayer");
  EXPECT_EQ(warnings.texts, (Texts{"Could not import class from path a.b.C: no class a.b.C"}));
}

}  // namespace
}  // namespace automodel::distributed

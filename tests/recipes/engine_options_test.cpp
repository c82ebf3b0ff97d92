// From keys of `distributed` in YAML to the engine: what each one is there. Losses would not tell,
// they are equal either way.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/groups/imagined_group.h"
#include "distributed/block_forwards.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/engine/sharded_engine.h"
#include "distributed/fsdp/gradient_check.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "models/catalog.h"
#include "recipes/build/build_engine.h"
#include "recipes/build/tp_request.h"
#include "recipes/check/check_run.h"
#include "recipes/engine_values.h"
#include "recipes/section_recipe.h"
#include "support/errors.h"

namespace automodel::recipes {
namespace {

using distributed::Engine;
using distributed::ShardedEngine;
using distributed::ShardingOptions;
using Texts = std::vector<std::string>;

/// Ranks that share parameters, and ranks that split layers.
distributed::DeviceMesh mesh_over(const comm::ProcessGroup& dp, const comm::ProcessGroup& tp) {
  const auto one = comm::ProcessGroup::solo();
  return distributed::DeviceMesh({{"dp_replicate", one},
                                  {"dp_shard_cp", dp},
                                  {"dp_cp", dp},
                                  {"dp", dp},
                                  {"cp", one},
                                  {"tp", tp}});
}

/// Two data-parallel ranks, of which this is the first. Setting up an engine sends nothing.
distributed::DeviceMesh two_ranks() {
  return mesh_over(comm::imagined_group("dp", 0, 2), comm::ProcessGroup::solo());
}

/// A rank alone, on which models compute too.
distributed::DeviceMesh one_rank() {
  return mesh_over(comm::ProcessGroup::solo(), comm::ProcessGroup::solo());
}

/// Forwards of a Llama's two blocks in a micro-batch, recomputed ones included.
size_t block_forwards(const std::string& section) {
  at::set_num_threads(1);  // other tests fork ranks, which takes a process without threads
  const auto model = golden_model("llama_default");
  model->train();
  distributed::BlockForwards seen;
  distributed::watch_blocks(*model, model->parallel_plan(), seen);
  SilentReporter reporter;
  const auto engine =
      build_engine(recipe_with(section), *model, one_rank(), {at::kCPU, nullptr, &reporter});
  fill_by_name(*engine);
  tensor::Batch batch;
  batch.input_ids = at::arange(8).view({1, 8});
  batch.labels = batch.input_ids + 1;
  engine->begin_micro_batch(true);
  model->loss(batch, 8.0, -100).backward();
  engine->end_micro_batch();
  return seen.size();
}

using Look = std::function<void(Engine& engine)>;

/// Lets `look` see the engine that a section makes of a model on two ranks.
void see_engine(const std::string& section, const Look& look,
                const std::string& golden = "llama_default") {
  const auto model = golden_model(golden);
  SilentReporter reporter;
  const auto engine =
      build_engine(recipe_with(section), *model, two_ranks(), {at::kCPU, nullptr, &reporter});
  look(*engine);
}

Texts units_of(Engine& engine) {
  Texts names;
  for (const auto* unit : dynamic_cast<ShardedEngine&>(engine).root().tree_units()) {
    names.push_back(unit->name());
  }
  return names;
}

/// The options of the first layer's unit.
ShardingOptions options_of(const std::string& section) {
  std::optional<ShardingOptions> found;
  see_engine(section, [&](Engine& engine) {
    for (const auto* unit : dynamic_cast<ShardedEngine&>(engine).root().tree_units()) {
      if (unit->name() == "model.layers.0") found = unit->options();
    }
  });
  EXPECT_TRUE(found.has_value()) << section;
  return found.value_or(ShardingOptions{});
}

ShardingOptions megatron(const std::string& keys) {
  return options_of(cat("strategy: megatron_fsdp\n", keys));
}

/// A strategy's arguments, for those that have no trace in the engine.
template <typename Options>
Options arguments_of(const std::string& section) {
  return std::get<Options>(strategy_options(recipe_with(section), "LlamaForCausalLM", {}));
}

distributed::NvfsdpOptions megatron_arguments(const std::string& keys) {
  return arguments_of<distributed::NvfsdpOptions>(cat("strategy: megatron_fsdp\n", keys));
}

// ---- fsdp2 --------------------------------------------------------------------------------------

TEST(EngineFromYaml, fsdp2_forward_prefetch_depth) {
  EXPECT_EQ(options_of("enable_fsdp2_prefetch: true\nfsdp2_forward_prefetch_depth: 3")
                .forward_prefetch_depth,
            3);
}

TEST(EngineFromYaml, fsdp2_backward_prefetch_depth) {
  EXPECT_EQ(options_of("enable_fsdp2_prefetch: true\nfsdp2_backward_prefetch_depth: 4")
                .backward_prefetch_depth,
            4);
}

TEST(EngineFromYaml, enable_fsdp2_prefetch) {
  const ShardingOptions off = options_of("fsdp2_forward_prefetch_depth: 3");
  EXPECT_EQ(off.forward_prefetch_depth + off.backward_prefetch_depth, 0);
  const ShardingOptions on = options_of("enable_fsdp2_prefetch: true");
  EXPECT_EQ(on.forward_prefetch_depth, 1);
  EXPECT_EQ(on.backward_prefetch_depth, 2);
}

TEST(EngineFromYaml, offload_policy) {
  EXPECT_FALSE(options_of("strategy: fsdp2").offload_policy.has_value());
  const ShardingOptions options = options_of(
      "offload_policy: {_target_: torch.distributed.fsdp.CPUOffloadPolicy, pin_memory: false}");
  ASSERT_TRUE(options.offload_policy.has_value());
  EXPECT_FALSE(options.offload_policy->pin_memory);
  EXPECT_TRUE(options_of("offload_policy: {pin_memory: true}").offload_policy->pin_memory);
}

TEST(EngineFromYaml, offload_policy_of_nothing) {
  EXPECT_FALSE(options_of("offload_policy: {_target_: torch.distributed.fsdp.OffloadPolicy}")
                   .offload_policy.has_value());
}

TEST(EngineFromYaml, defer_fsdp_grad_sync) {
  EXPECT_TRUE(options_of("strategy: fsdp2").defers_gradients);
  EXPECT_FALSE(options_of("defer_fsdp_grad_sync: false").defers_gradients);
}

TEST(EngineFromYaml, reshard_after_forward) {
  EXPECT_EQ(options_of("strategy: fsdp2").reshard_after_forward, true);
  EXPECT_EQ(options_of("reshard_after_forward: false").reshard_after_forward, false);
}

TEST(EngineFromYaml, mp_policy) {
  const ShardingOptions options = options_of(
      "mp_policy:\n  _target_: torch.distributed.fsdp.MixedPrecisionPolicy\n"
      "  param_dtype: float16\n  reduce_dtype: float64\n  output_dtype: float32\n"
      "  cast_forward_inputs: true");
  EXPECT_EQ(options.param_dtype, at::kHalf);
  EXPECT_EQ(options.reduce_dtype, at::kDouble);
  EXPECT_EQ(options.output_dtype, at::kFloat);
  EXPECT_TRUE(options.casts_inputs);
  EXPECT_FALSE(
      options_of("mp_policy: {param_dtype: float16, cast_forward_inputs: false}").casts_inputs);
}

TEST(EngineFromYaml, fsdp2_arguments) {
  const auto options = arguments_of<distributed::ParallelizeOptions>(
      "sequence_parallel: true\nactivation_checkpointing: true\ntp_plan: {lm_head: colwise}\n"
      "cp_rotate_method: alltoall\nenable_async_tensor_parallel: true\nep_size: 2\n"
      "moe: {reshard_after_forward: true}");
  EXPECT_TRUE(options.sequence_parallel);
  EXPECT_EQ(options.activation_checkpointing, distributed::ActivationCheckpointingMode::kFull);
  EXPECT_EQ(options.tp_shard_plan,
            distributed::TpPlanChoice(distributed::TpStyleNames{{"lm_head", "colwise"}}));
  EXPECT_EQ(options.cp_rotate_method, distributed::CpRotateMethod::kAllToAll);
  EXPECT_TRUE(options.enable_async_tensor_parallel);
  EXPECT_TRUE(options.moe.reshard_after_forward);
}

TEST(EngineFromYaml, tp_plan) {
  const auto width_of_mlp = [](const std::string& section) {
    const auto model = golden_model("llama_default");
    SilentReporter reporter;
    const auto mesh = mesh_over(comm::ProcessGroup::solo(), comm::imagined_group("tp", 0, 2));
    build_engine(recipe_with(section), *model, mesh, {at::kCPU, nullptr, &reporter});
    return std::pair(model->named_parameters()["model.layers.1.mlp.down_proj.weight"].size(1),
                     model->named_parameters()["lm_head.weight"].size(0));
  };
  EXPECT_EQ(width_of_mlp("tp_size: 2"), (std::pair<int64_t, int64_t>{28, 64}));
  EXPECT_EQ(width_of_mlp("tp_size: 2\ntp_plan: {lm_head: colwise}"),
            (std::pair<int64_t, int64_t>{56, 64}));
}

TEST(EngineFromYaml, cp_rotate_method) {
  using distributed::CpRotateMethod;
  const std::string key = "cp_size: 2\ncp_rotate_method: ";
  const auto fsdp2 = [&](const char* method) {
    return arguments_of<distributed::ParallelizeOptions>(cat(key, method)).cp_rotate_method;
  };
  EXPECT_EQ(fsdp2("allgather"), CpRotateMethod::kAllGather);
  EXPECT_EQ(fsdp2("alltoall"), CpRotateMethod::kAllToAll);
  EXPECT_EQ(megatron_arguments("").cp_rotate_method, CpRotateMethod::kAllGather);
  EXPECT_EQ(megatron_arguments(cat(key, "alltoall")).cp_rotate_method, CpRotateMethod::kAllToAll);
}

TEST(EngineFromYaml, enable_async_tensor_parallel) {
  EXPECT_TRUE(tp_request(recipe_with("enable_async_tensor_parallel: true")).sequence_parallel);
  EXPECT_FALSE(tp_request(recipe_with("strategy: fsdp2")).sequence_parallel);
}

// ---- megatron_fsdp ------------------------------------------------------------------------------

TEST(EngineFromYaml, zero_dp_strategy) {
  using distributed::Placement;
  for (const int zero : {0, 1, 2, 3}) {
    const ShardingOptions options = megatron(cat("zero_dp_strategy: ", zero));
    EXPECT_EQ(options.gradients == Placement::kSharded, zero >= 2) << zero;
    EXPECT_EQ(options.parameters == Placement::kSharded, zero == 3) << zero;
    see_engine(cat("strategy: megatron_fsdp\nzero_dp_strategy: ", zero), [&](Engine& engine) {
      EXPECT_EQ(engine.held_part().count, zero == 0 ? 1 : 2) << zero;
    });
  }
}

TEST(EngineFromYaml, grad_reduce_in_fp32) {
  EXPECT_FALSE(megatron("").reduce_dtype.has_value());
  EXPECT_EQ(megatron("grad_reduce_in_fp32: true").reduce_dtype, at::kFloat);
  EXPECT_EQ(megatron("grad_reduce_in_fp32: true").gradient_dtype, at::kFloat);
}

TEST(EngineFromYaml, preserve_fp32_weights) {
  EXPECT_FALSE(megatron("").main_dtype.has_value());
  EXPECT_EQ(megatron("preserve_fp32_weights: true").main_dtype, at::kFloat);
}

TEST(EngineFromYaml, overlap_grad_reduce) {
  EXPECT_TRUE(megatron("zero_dp_strategy: 1").overlaps_reductions);
  EXPECT_FALSE(megatron("zero_dp_strategy: 1\noverlap_grad_reduce: false").overlaps_reductions);
}

TEST(EngineFromYaml, overlap_param_gather) {
  EXPECT_EQ(megatron("zero_dp_strategy: 1").forward_prefetch_depth, 1);
  const ShardingOptions off = megatron("zero_dp_strategy: 1\noverlap_param_gather: false");
  EXPECT_EQ(off.forward_prefetch_depth + off.backward_prefetch_depth, 0);
}

TEST(EngineFromYaml, check_for_nan_in_grad) {
  EXPECT_EQ(megatron("").gradient_check, distributed::GradientCheck::kNonFinite);
  EXPECT_EQ(megatron("check_for_nan_in_grad: false").gradient_check,
            distributed::GradientCheck::kNone);
}

TEST(EngineFromYaml, report_nan_in_param_grad) {
  const std::string unchecked = "check_for_nan_in_grad: false\nreport_nan_in_param_grad: ";
  EXPECT_EQ(megatron(unchecked + "false").gradient_check, distributed::GradientCheck::kNone);
  EXPECT_EQ(megatron(unchecked + "true").gradient_check, distributed::GradientCheck::kNonFinite);
}

TEST(EngineFromYaml, average_in_collective) {
  EXPECT_EQ(megatron("").scaling, distributed::GradientScaling::kDivideThenSum);
  EXPECT_EQ(megatron("average_in_collective: true").scaling,
            distributed::GradientScaling::kAverage);
}

TEST(EngineFromYaml, calculate_per_token_loss) {
  EXPECT_NE(megatron("").scaling, distributed::GradientScaling::kSum);
  EXPECT_EQ(megatron("calculate_per_token_loss: true").scaling, distributed::GradientScaling::kSum);
}

TEST(EngineFromYaml, megatron_fsdp_unit_modules) {
  const std::string key = "strategy: megatron_fsdp\nmegatron_fsdp_unit_modules: ";
  const std::string model = "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3Moe";
  const auto expect_units = [](const std::string& section, const Texts& wanted) {
    see_engine(
        section, [&](Engine& engine) { EXPECT_EQ(units_of(engine), wanted) << section; },
        "qwen3_moe");
  };
  const nn::ParallelPlan plan = golden_model("qwen3_moe")->parallel_plan();
  const auto with_root = [](Texts units) {
    units.insert(units.begin(), "");
    return units;
  };
  const Texts layers = with_root(plan.blocks);
  expect_units("strategy: megatron_fsdp", layers);  // absent: the model's own layers
  expect_units(cat(key, "[", model, "DecoderLayer]"), layers);
  EXPECT_EQ(plan.expert_modules.size(), 2u);
  expect_units(cat(key, "[", model, "Experts]"), with_root(plan.expert_modules));
  expect_units(cat(key, "[]"), {""});
}

TEST(EngineFromYaml, NvfsdpsOwnNames) {
  using enum distributed::Placement;
  const auto placements = [](const char* name) {
    const ShardingOptions options = megatron(cat("data_parallel_sharding_strategy: ", name));
    return std::pair{options.parameters, options.gradients};
  };
  EXPECT_EQ(placements("optim"), std::pair(kReplicated, kReplicated));
  EXPECT_EQ(placements("optim_grads"), std::pair(kReplicated, kSharded));
  EXPECT_EQ(placements("params"), std::pair(kSharded, kReplicated));
  EXPECT_EQ(placements("null"), std::pair(kSharded, kSharded));
  const auto arguments = megatron_arguments(
      "nvfsdp_unit_modules: [torch.nn.Embedding]\ninit_nvfsdp_with_meta_device: true\n"
      "keep_fp8_transpose_cache_when_using_custom_fsdp: true");
  EXPECT_EQ(arguments.config.megatron_fsdp_unit_modules, Texts{"torch.nn.Embedding"});
  EXPECT_TRUE(arguments.config.init_fsdp_with_meta_device);
  EXPECT_TRUE(arguments.config.keep_fp8_transpose_cache);
}

// Nothing in the engine tells these: they change nothing in it, or hold before it is made.
TEST(EngineFromYaml, init_fsdp_with_meta_device) {
  EXPECT_TRUE(
      megatron_arguments("init_fsdp_with_meta_device: true").config.init_fsdp_with_meta_device);
}

TEST(EngineFromYaml, disable_bucketing) {
  EXPECT_TRUE(megatron_arguments("disable_bucketing: true").config.disable_bucketing);
}

TEST(EngineFromYaml, keep_fp8_transpose_cache) {
  EXPECT_TRUE(megatron_arguments("keep_fp8_transpose_cache: true").config.keep_fp8_transpose_cache);
}

TEST(EngineFromYaml, nccl_ub) {
  EXPECT_TRUE(megatron_arguments("nccl_ub: true").config.nccl_ub);
}

TEST(EngineFromYaml, fsdp_double_buffer) {
  EXPECT_TRUE(megatron_arguments("fsdp_double_buffer: true").config.fsdp_double_buffer);
}

TEST(EngineFromYaml, megatron_activation_checkpointing) {
  EXPECT_EQ(megatron_arguments("activation_checkpointing: true").config.activation_checkpointing,
            distributed::ActivationCheckpointingMode::kFull);
}

// ---- ddp and the choice of a strategy -----------------------------------------------------------

TEST(EngineFromYaml, bucket_cap_mb) {
  const auto of_one = arguments_of<distributed::ReplicaOptions>("strategy: ddp\nbucket_cap_mb: 3");
  EXPECT_EQ(of_one.replicas.bucket_bytes, int64_t{3} << 20);
  EXPECT_EQ(of_one.replicas.first_bucket_bytes, int64_t{1} << 20);
}

TEST(EngineFromYaml, strategy) {
  const auto scaling_of = [](const char* strategy) {
    return options_of(cat("strategy: ", strategy)).scaling;
  };
  EXPECT_EQ(scaling_of("fsdp2"), ShardingOptions{}.scaling);
  for (const char* name : {"megatron_fsdp", "megatron-fsdp", "mfsdp"}) {
    EXPECT_EQ(scaling_of(name), distributed::GradientScaling::kDivideThenSum) << name;
  }
  see_engine("strategy: ddp", [](Engine& engine) {
    EXPECT_NE(dynamic_cast<distributed::DataParallel*>(&engine), nullptr);
  });
}

TEST(EngineFromYaml, SizesMakeTheMesh) {
  const auto mesh_of_sixteen = [](const std::string& section) {
    return mesh_of(recipe_with(section), 16);
  };
  using mesh::MeshSizes;
  EXPECT_EQ(mesh_of_sixteen("strategy: fsdp2"), (MeshSizes{.dp_shard = 16}));
  EXPECT_EQ(mesh_of_sixteen("dp_replicate_size: 2"), (MeshSizes{.dp_replicate = 2, .dp_shard = 8}));
  EXPECT_EQ(mesh_of_sixteen("tp_size: 2"), (MeshSizes{.dp_shard = 8, .tp = 2}));
  EXPECT_EQ(mesh_of_sixteen("pp_size: 2"), (MeshSizes{.pp = 2, .dp_shard = 8}));
  EXPECT_EQ(mesh_of_sixteen("cp_size: 2"), (MeshSizes{.dp_shard = 8, .cp = 2}));
  EXPECT_EQ(mesh_of_sixteen("tp_size: 2\npp_size: 2\ndp_size: 4"),
            (MeshSizes{.pp = 2, .dp_shard = 4, .tp = 2}));
}

/// Without a number of ranks a recipe is checked and planned for those that its sizes state.
TEST(EngineFromYaml, dp_size) {
  EXPECT_EQ(fitting_world_size(recipe_with("tp_size: 2")), 2);
  EXPECT_EQ(fitting_world_size(recipe_with("tp_size: 2\ndp_size: 4")), 8);
}

TEST(EngineFromYaml, activation_checkpointing) {
  for (const char* strategy : {"fsdp2", "megatron_fsdp", "ddp"}) {
    const std::string key = cat("strategy: ", strategy, "\nactivation_checkpointing: ");
    EXPECT_EQ(block_forwards(cat("strategy: ", strategy)), 2u) << strategy;
    EXPECT_EQ(block_forwards(cat(key, "false")), 2u) << strategy;
    EXPECT_EQ(block_forwards(cat(key, "true")), 4u) << strategy;
  }
  EXPECT_EQ(block_forwards("strategy: fsdp2\nactivation_checkpointing: selective"), 4u);
  EXPECT_EQ(block_forwards("strategy: ddp\nactivation_checkpointing: selective"), 4u);
}

/// Models have a language part only: other scopes select nothing of it.
TEST(EngineFromYaml, activation_checkpointing_scope) {
  for (const char* strategy : {"fsdp2", "ddp"}) {
    const std::string key = cat("strategy: ", strategy,
                                "\nactivation_checkpointing: true\n"
                                "activation_checkpointing_scope: ");
    EXPECT_EQ(block_forwards(cat(key, "vision")), 2u) << strategy;
    EXPECT_EQ(block_forwards(cat(key, "[vision, audio]")), 2u) << strategy;
    EXPECT_EQ(block_forwards(cat(key, "language")), 4u) << strategy;
    EXPECT_EQ(block_forwards(cat(key, "[vision, language]")), 4u) << strategy;
    EXPECT_EQ(block_forwards(cat(key, "all")), 4u) << strategy;
  }
}

TEST(EngineFromYaml, EveryNameOfADistributedClassChoosesItsStrategy) {
  using distributed::Strategy;
  const std::string module = "nemo_automodel.components.distributed.";
  const std::pair<const char*, Strategy> names[] = {
      {"config.FSDP2Config", Strategy::kFsdp2},
      {"FSDP2Config", Strategy::kFsdp2},
      {"fsdp2.FSDP2Manager", Strategy::kFsdp2},
      {"config.MegatronFSDPConfig", Strategy::kMegatronFsdp},
      {"MegatronFSDPConfig", Strategy::kMegatronFsdp},
      {"megatron_fsdp.MegatronFSDPManager", Strategy::kMegatronFsdp},
      {"nvfsdp.NVFSDPManager", Strategy::kMegatronFsdp},
      {"config.DDPConfig", Strategy::kDdp},
      {"DDPConfig", Strategy::kDdp},
      {"ddp.DDPManager", Strategy::kDdp}};
  for (const auto& [name, strategy] : names) {
    EXPECT_EQ(recipe_with(cat("_target_: ", module, name)).distributed.strategy, strategy) << name;
    const std::string both =
        cat("strategy: ", distributed::strategy_name(strategy), "\n_target_: ", module, name);
    EXPECT_EQ(recipe_with(both).distributed.strategy, strategy) << both;
  }
}

TEST(EngineFromYaml, ADdpTargetMakesReplicas) {
  see_engine("_target_: nemo_automodel.components.distributed.config.DDPConfig",
             [](Engine& engine) {
               EXPECT_NE(dynamic_cast<distributed::DataParallel*>(&engine), nullptr);
               EXPECT_EQ(engine.held_part().num_holders, 2);
             });
}

TEST(EngineFromYaml, AMegatronTargetHasItsPlacements) {
  const auto options = options_of(
      "_target_: nemo_automodel.components.distributed.megatron_fsdp.MegatronFSDPManager");
  EXPECT_EQ(options.scaling, distributed::GradientScaling::kDivideThenSum);
}

TEST(EngineFromYaml, TheOptimizerIsMadeOnceOnTheShards) {
  for (const char* strategy : {"fsdp2", "megatron_fsdp", "ddp"}) {
    const auto model = golden_model("llama_default");
    SilentReporter reporter;
    std::vector<const Engine*> seen;
    EnginePlace place{at::kCPU, nullptr, &reporter};
    place.optimizer = [&](Engine& engine) { seen.push_back(&engine); };
    const auto engine =
        build_engine(recipe_with(cat("strategy: ", strategy)), *model, two_ranks(), place);
    EXPECT_EQ(seen, std::vector<const Engine*>{engine.get()}) << strategy;
  }
}

TEST(EngineFromYaml, PlansAskTheStrategyOfTheModelsClassForItsUnits) {
  const auto units_of_golden = [](const std::string& section, const std::string& golden) {
    return planned_units(recipe_with(section), *golden_model(golden));
  };
  const auto diffusion = units_of_golden("strategy: fsdp2", "diffusion_gemma");
  EXPECT_EQ(diffusion.experts.size(), diffusion.blocks.size());
  EXPECT_FALSE(diffusion.blocks.empty());
  EXPECT_TRUE(units_of_golden("strategy: megatron_fsdp", "diffusion_gemma").experts.empty());
  EXPECT_TRUE(units_of_golden("strategy: fsdp2", "qwen3_moe").experts.empty());
  const auto llama = units_of_golden("strategy: fsdp2", "llama_default");
  EXPECT_EQ(llama.blocks, (Texts{"model.layers.0", "model.layers.1"}));
  EXPECT_EQ(llama.tables.head, "lm_head");
  EXPECT_EQ(units_of_golden("strategy: megatron_fsdp", "llama_default").tables.head, "");
}

}  // namespace
}  // namespace automodel::recipes

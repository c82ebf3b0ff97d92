// One test for every option of upstream's distributed configuration that is a field here: its
// default, and what is said about values that it does not take.

#include <gtest/gtest.h>

#include <algorithm>

#include "distributed/settings/distributed_config.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "distributed/strategies/parallelizer.h"
#include "support/errors.h"

namespace automodel::distributed {
namespace {

using Names = std::vector<std::string>;

/// The names that a dictionary lists, in order.
Names keys_of(const ConfigDict& dict) {
  Names names;
  for (const auto& [name, value] : dict) names.push_back(name);
  return names;
}

/// The names of all fields, in order.
template <typename Config>
Names field_names() {
  Names names;
  for_each_field<Config>([&](const auto& field) { names.emplace_back(field.name); });
  return names;
}

/// The finding of one strategy's setup on one rank, "" when there is none.
template <typename Change>
std::string finding_of(Strategy strategy, const Change& change) {
  DistributedSetup setup;
  setup.strategy = strategy;
  change(setup);
  const auto findings = check_setup(setup, 1);
  return findings.empty() ? "" : findings[0].text;
}

/// What a person who sets a field is told: why it changes nothing; "" when it does.
template <typename Config>
std::string no_effect_of(std::string_view name) {
  std::string reason;
  for_each_field<Config>([&](const auto& field) {
    if (name == field.name && field.no_effect != nullptr) reason = field.no_effect;
  });
  return reason;
}

template <typename Config>
bool names_a_size() {
  const Names names = field_names<Config>();
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with("_size"); });
}

TEST(DistributedConfigRows, SizesAreSeparateFromTheStrategies) {
  EXPECT_FALSE(names_a_size<FSDP2Config>());
  EXPECT_FALSE(names_a_size<MegatronFSDPConfig>());
  EXPECT_FALSE(names_a_size<DDPConfig>());
  EXPECT_EQ(field_names<ParallelismSizes>(),
            Names({"dp_size", "dp_replicate_size", "tp_size", "pp_size", "cp_size", "ep_size"}));
}

TEST(DistributedConfigRows, dp_replicate_size) {
  for (const Strategy strategy : {Strategy::kMegatronFsdp, Strategy::kDdp}) {
    DistributedSetup setup;
    setup.strategy = strategy;
    setup.sizes.dp_replicate_size = 2;
    const auto findings = check_setup(setup, 4);
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].text, "dp_replicate_size is only supported with FSDP2Config");
  }
}

TEST(DistributedConfigRows, DistributedConfig) {
  static_assert(
      std::is_same_v<DistributedConfig, std::variant<FSDP2Config, MegatronFSDPConfig, DDPConfig>>);
  DistributedSetup setup;
  setup.fsdp2.enable_fsdp2_prefetch = true;
  setup.megatron_fsdp.zero_dp_strategy = 1;
  setup.ddp.bucket_cap_mb = 7;
  EXPECT_TRUE(std::get<FSDP2Config>(distributed_config(setup)).enable_fsdp2_prefetch);
  setup.strategy = Strategy::kMegatronFsdp;
  EXPECT_EQ(std::get<MegatronFSDPConfig>(distributed_config(setup)).zero_dp_strategy, 1);
  setup.strategy = Strategy::kDdp;
  EXPECT_EQ(std::get<DDPConfig>(distributed_config(setup)).bucket_cap_mb, 7);
  EXPECT_EQ(describe(setup),
            "DDPConfig(activation_checkpointing: false, activation_checkpointing_scope: [all], "
            "backend: nccl, broadcast_buffers: false, find_unused_parameters: false, static_graph: "
            "false, bucket_cap_mb: 7, gradient_as_bucket_view: false, autocast_dtype: none)");
}

TEST(DistributedConfigRows, ParallelizersTakeAConfigAndAMesh) {
  using Fsdp2 = std::unique_ptr<Engine>(const ParallelModel&, const DeviceMesh&,
                                        const ParallelizeOptions&, const StrategyRegistry&);
  using Megatron =
      std::unique_ptr<Engine>(const ParallelModel&, const DeviceMesh&, const NvfsdpOptions&,
                              Reporter&, const StrategyRegistry&);
  using Replicas = std::unique_ptr<Engine>(const ParallelModel&, const DeviceMesh&,
                                           const ReplicaOptions&, const StrategyRegistry&);
  static_assert(std::is_same_v<decltype(fsdp2_strategy_parallelize), Fsdp2>);
  static_assert(std::is_same_v<decltype(nvfsdp_strategy_parallelize), Megatron>);
  static_assert(std::is_same_v<decltype(ddp_strategy_parallelize), Replicas>);
}

TEST(FSDP2Config, sequence_parallel) {
  EXPECT_FALSE(FSDP2Config().sequence_parallel);
}

TEST(FSDP2Config, tp_plan) {
  EXPECT_FALSE(FSDP2Config().tp_plan.has_value());
}

TEST(FSDP2Config, patch_is_packed_sequence) {
  EXPECT_FALSE(FSDP2Config().patch_is_packed_sequence);
  EXPECT_EQ(no_effect_of<FSDP2Config>("patch_is_packed_sequence"),
            "there is no such probe here: packing is stated by the batch");
}

TEST(FSDP2Config, mp_policy) {
  EXPECT_FALSE(FSDP2Config().mp_policy.has_value());
  const MixedPrecisionPolicy written;
  EXPECT_FALSE(written.param_dtype.has_value());
  EXPECT_FALSE(written.reduce_dtype.has_value());
  EXPECT_FALSE(written.output_dtype.has_value());
  EXPECT_TRUE(written.cast_forward_inputs);
  const auto unwritten = mixed_precision_policy({});
  ASSERT_TRUE(unwritten.has_value());
  EXPECT_EQ(unwritten->param_dtype, "bfloat16");
  EXPECT_EQ(unwritten->reduce_dtype, "float32");
  EXPECT_FALSE(unwritten->output_dtype.has_value());
  EXPECT_FALSE(unwritten->cast_forward_inputs);
}

TEST(FSDP2Config, offload_policy) {
  EXPECT_FALSE(FSDP2Config().offload_policy.has_value());
  EXPECT_TRUE(CPUOffloadPolicy().pin_memory);
}

TEST(FSDP2Config, autocast_dtype) {
  EXPECT_FALSE(autocast_dtype({}).has_value());
  DistributedSetup setup;
  setup.fsdp2.autocast_dtype = "bfloat16";
  EXPECT_EQ(autocast_dtype(setup), "bfloat16");
}

TEST(FSDP2Config, activation_checkpointing) {
  EXPECT_EQ(FSDP2Config().activation_checkpointing, ActivationCheckpointingMode::kOff);
  EXPECT_EQ(FSDP2Config().activation_checkpointing_scope, Names({"all"}));
  EXPECT_EQ(finding_of(Strategy::kFsdp2,
                       [](DistributedSetup& setup) {
                         setup.fsdp2.activation_checkpointing =
                             ActivationCheckpointingMode::kSelective;
                       }),
            "");
}

TEST(FSDP2Config, defer_fsdp_grad_sync) {
  EXPECT_TRUE(FSDP2Config().defer_fsdp_grad_sync);
}

TEST(FSDP2Config, reshard_after_forward) {
  EXPECT_FALSE(FSDP2Config().reshard_after_forward.has_value());
}

TEST(FSDP2Config, backend) {
  EXPECT_EQ(FSDP2Config().backend, "nccl");
}

TEST(FSDP2Config, enable_async_tensor_parallel) {
  EXPECT_FALSE(FSDP2Config().enable_async_tensor_parallel);
}

TEST(FSDP2Config, enable_compile) {
  EXPECT_FALSE(FSDP2Config().enable_compile);
  EXPECT_EQ(no_effect_of<FSDP2Config>("enable_compile"), "kernels are fused ahead of time here");
}

TEST(FSDP2Config, enable_fsdp2_prefetch) {
  EXPECT_FALSE(FSDP2Config().enable_fsdp2_prefetch);
}

TEST(FSDP2Config, fsdp2_backward_prefetch_depth) {
  EXPECT_EQ(FSDP2Config().fsdp2_backward_prefetch_depth, 2);
}

TEST(FSDP2Config, fsdp2_forward_prefetch_depth) {
  EXPECT_EQ(FSDP2Config().fsdp2_forward_prefetch_depth, 1);
}

TEST(FSDP2Config, to_dict) {
  FSDP2Config config;
  config.mp_policy = MixedPrecisionPolicy{};
  config.offload_policy = CPUOffloadPolicy{};
  config.tp_plan = TpStyleNames{{"lm_head", "colwise"}};
  config.activation_checkpointing = ActivationCheckpointingMode::kSelective;
  const ConfigDict dict = config.to_dict();
  EXPECT_EQ(
      keys_of(dict),
      Names({"sequence_parallel", "tp_plan", "patch_is_packed_sequence", "mp_policy",
             "offload_policy", "autocast_dtype", "activation_checkpointing",
             "activation_checkpointing_scope", "defer_fsdp_grad_sync", "reshard_after_forward",
             "backend", "enable_async_tensor_parallel", "enable_compile", "enable_fsdp2_prefetch",
             "fsdp2_backward_prefetch_depth", "fsdp2_forward_prefetch_depth"}));
  const auto is = [&](const char* name, const ConfigValue& value) {
    return *find(dict, name) == value;
  };
  // Shallow: the configuration's own policies.
  EXPECT_TRUE(is("mp_policy", &*config.mp_policy));
  EXPECT_TRUE(is("offload_policy", &*config.offload_policy));
  EXPECT_TRUE(is("tp_plan", *config.tp_plan));
  EXPECT_TRUE(is("sequence_parallel", false));
  EXPECT_TRUE(is("activation_checkpointing", std::string("selective")));
  EXPECT_TRUE(is("activation_checkpointing_scope", Names({"all"})));
  EXPECT_TRUE(is("reshard_after_forward", std::monostate()));
  EXPECT_TRUE(is("fsdp2_backward_prefetch_depth", int64_t{2}));
  EXPECT_EQ(find(dict, "dp_size"), nullptr);
  const Json json = to_json(dict);
  EXPECT_EQ(json.at("offload_policy").at("pin_memory"), Json(true));
  EXPECT_TRUE(json.at("autocast_dtype").is_null());
  config.tp_plan_name = "llama_nemotron_super_tp_plan";
  EXPECT_EQ(*find(config.to_dict(), "tp_plan"), ConfigValue(*config.tp_plan_name));
}

TEST(FSDP2Config, post_init) {
  FSDP2Config config;
  config.activation_checkpointing_scope = {"Vision+Audio"};
  EXPECT_TRUE(config.post_init().empty());
  ASSERT_TRUE(config.mp_policy.has_value());
  EXPECT_EQ(config.mp_policy->param_dtype, "bfloat16");
  EXPECT_EQ(config.mp_policy->reduce_dtype, "float32");
  EXPECT_FALSE(config.mp_policy->output_dtype || config.mp_policy->cast_forward_inputs);
  EXPECT_EQ(config.activation_checkpointing_scope, Names({"vision", "audio"}));
  EXPECT_FALSE(config.sequence_parallel);
  config.mp_policy->param_dtype = "float16";
  config.enable_async_tensor_parallel = true;
  const auto warnings = config.post_init();
  EXPECT_EQ(config.mp_policy->param_dtype, "float16");
  EXPECT_TRUE(config.sequence_parallel);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].key, "enable_async_tensor_parallel");
  EXPECT_EQ(warnings[0].text,
            "enable_async_tensor_parallel needs sequence_parallel, which is turned on");
  EXPECT_TRUE(config.post_init().empty());
}

TEST(MegatronFSDPConfig, sequence_parallel) {
  EXPECT_FALSE(MegatronFSDPConfig().sequence_parallel);
  EXPECT_EQ(
      finding_of(Strategy::kMegatronFsdp,
                 [](DistributedSetup& setup) { setup.megatron_fsdp.sequence_parallel = true; }),
      "megatron_fsdp does not yet support sequence_parallel");
}

TEST(MegatronFSDPConfig, tp_plan) {
  // An InitVar: no field, only an argument of post_init.
  const Names names = field_names<MegatronFSDPConfig>();
  EXPECT_EQ(std::count(names.begin(), names.end(), "tp_plan"), 0);
  EXPECT_EQ(find(MegatronFSDPConfig().to_dict(), "tp_plan"), nullptr);
}

TEST(MegatronFSDPConfig, post_init) {
  MegatronFSDPConfig config;
  EXPECT_TRUE(config.post_init().empty());
  EXPECT_EQ(test::error_of<UserError>([&] { config.post_init(TpStyleNames{}); }),
            "MegatronFSDPConfig does not support custom TP plans. Use FSDP2Config instead.");
}

TEST(MegatronFSDPConfig, megatron_fsdp_unit_modules) {
  EXPECT_FALSE(MegatronFSDPConfig().megatron_fsdp_unit_modules.has_value());
}

TEST(MegatronFSDPConfig, zero_dp_strategy) {
  EXPECT_EQ(MegatronFSDPConfig().zero_dp_strategy, 3);
  for_each_field<MegatronFSDPConfig>([](const auto& field) {
    if (std::string_view(field.name) != "zero_dp_strategy") return;
    EXPECT_EQ(field.minimum, 0);
    EXPECT_EQ(field.maximum, 3);
  });
  for (const int64_t number : {-1, 4}) {
    MegatronFSDPConfig config;
    config.zero_dp_strategy = number;
    EXPECT_EQ(test::error_of<UserError>([&] { sharding_options(config, at::kCPU); }),
              cat("zero_dp_strategy takes 0, 1, 2 or 3, found ", number));
  }
}

TEST(MegatronFSDPConfig, init_fsdp_with_meta_device) {
  EXPECT_FALSE(MegatronFSDPConfig().init_fsdp_with_meta_device);
}

TEST(MegatronFSDPConfig, grad_reduce_in_fp32) {
  EXPECT_FALSE(MegatronFSDPConfig().grad_reduce_in_fp32);
}

TEST(MegatronFSDPConfig, preserve_fp32_weights) {
  EXPECT_FALSE(MegatronFSDPConfig().preserve_fp32_weights);
}

TEST(MegatronFSDPConfig, overlap_grad_reduce) {
  EXPECT_TRUE(MegatronFSDPConfig().overlap_grad_reduce);
}

TEST(MegatronFSDPConfig, overlap_param_gather) {
  EXPECT_TRUE(MegatronFSDPConfig().overlap_param_gather);
}

TEST(MegatronFSDPConfig, check_for_nan_in_grad) {
  EXPECT_TRUE(MegatronFSDPConfig().check_for_nan_in_grad);
}

TEST(MegatronFSDPConfig, report_nan_in_param_grad) {
  EXPECT_FALSE(MegatronFSDPConfig().report_nan_in_param_grad);
}

TEST(MegatronFSDPConfig, average_in_collective) {
  EXPECT_FALSE(MegatronFSDPConfig().average_in_collective);
}

TEST(MegatronFSDPConfig, disable_bucketing) {
  EXPECT_FALSE(MegatronFSDPConfig().disable_bucketing);
}

TEST(MegatronFSDPConfig, calculate_per_token_loss) {
  EXPECT_FALSE(MegatronFSDPConfig().calculate_per_token_loss);
}

TEST(MegatronFSDPConfig, keep_fp8_transpose_cache) {
  EXPECT_FALSE(MegatronFSDPConfig().keep_fp8_transpose_cache);
}

TEST(MegatronFSDPConfig, nccl_ub) {
  EXPECT_FALSE(MegatronFSDPConfig().nccl_ub);
}

TEST(MegatronFSDPConfig, fsdp_double_buffer) {
  EXPECT_FALSE(MegatronFSDPConfig().fsdp_double_buffer);
}

TEST(MegatronFSDPConfig, activation_checkpointing) {
  EXPECT_EQ(MegatronFSDPConfig().activation_checkpointing, ActivationCheckpointingMode::kOff);
  EXPECT_EQ(finding_of(Strategy::kMegatronFsdp,
                       [](DistributedSetup& setup) {
                         setup.megatron_fsdp.activation_checkpointing =
                             ActivationCheckpointingMode::kSelective;
                       }),
            "selective activation checkpointing is supported only for FSDP2 and DDP configs.");
}

TEST(MegatronFSDPConfig, backend) {
  EXPECT_EQ(MegatronFSDPConfig().backend, "nccl");
}

TEST(MegatronFSDPConfig, pp_size) {
  EXPECT_EQ(
      finding_of(Strategy::kMegatronFsdp, [](DistributedSetup& setup) { setup.sizes.pp_size = 2; }),
      "megatron_fsdp does not support pipeline parallelism");
}

TEST(MegatronFSDPConfig, ep_size) {
  EXPECT_EQ(
      finding_of(Strategy::kMegatronFsdp, [](DistributedSetup& setup) { setup.sizes.ep_size = 2; }),
      "megatron_fsdp does not support expert parallelism");
}

TEST(MegatronFSDPConfig, to_dict) {
  MegatronFSDPConfig config;
  config.megatron_fsdp_unit_modules = {{"a.B"}};
  config.zero_dp_strategy = 2;
  const ConfigDict dict = config.to_dict();
  EXPECT_EQ(keys_of(dict),
            Names({"sequence_parallel", "megatron_fsdp_unit_modules", "zero_dp_strategy",
                   "init_fsdp_with_meta_device", "grad_reduce_in_fp32", "preserve_fp32_weights",
                   "overlap_grad_reduce", "overlap_param_gather", "check_for_nan_in_grad",
                   "report_nan_in_param_grad", "average_in_collective", "disable_bucketing",
                   "calculate_per_token_loss", "keep_fp8_transpose_cache", "nccl_ub",
                   "fsdp_double_buffer", "activation_checkpointing", "backend"}));
  EXPECT_EQ(*find(dict, "megatron_fsdp_unit_modules"), ConfigValue(Names({"a.B"})));
  EXPECT_EQ(*find(dict, "zero_dp_strategy"), ConfigValue(int64_t{2}));
  EXPECT_EQ(*find(dict, "overlap_grad_reduce"), ConfigValue(true));
}

TEST(DDPConfig, activation_checkpointing) {
  EXPECT_EQ(DDPConfig().activation_checkpointing, ActivationCheckpointingMode::kOff);
  EXPECT_EQ(DDPConfig().activation_checkpointing_scope, Names({"all"}));
  EXPECT_EQ(finding_of(Strategy::kDdp,
                       [](DistributedSetup& setup) {
                         setup.ddp.activation_checkpointing =
                             ActivationCheckpointingMode::kSelective;
                       }),
            "");
}

TEST(DDPConfig, backend) {
  EXPECT_EQ(DDPConfig().backend, "nccl");
}

TEST(DDPConfig, broadcast_buffers) {
  EXPECT_FALSE(DDPConfig().broadcast_buffers);
}

TEST(DDPConfig, find_unused_parameters) {
  EXPECT_FALSE(DDPConfig().find_unused_parameters);
}

TEST(DDPConfig, static_graph) {
  EXPECT_FALSE(DDPConfig().static_graph);
}

TEST(DDPConfig, bucket_cap_mb) {
  EXPECT_FALSE(DDPConfig().bucket_cap_mb.has_value());
}

TEST(DDPConfig, gradient_as_bucket_view) {
  EXPECT_FALSE(DDPConfig().gradient_as_bucket_view);
}

TEST(DDPConfig, autocast_dtype) {
  DistributedSetup setup;
  setup.strategy = Strategy::kDdp;
  setup.fsdp2.autocast_dtype = "float16";
  EXPECT_FALSE(autocast_dtype(setup).has_value());
  setup.ddp.autocast_dtype = "bfloat16";
  EXPECT_EQ(autocast_dtype(setup), "bfloat16");
}

TEST(DDPConfig, OtherAxesAreRefused) {
  const auto finding = [](std::optional<int64_t> ParallelismSizes::*size) {
    return finding_of(Strategy::kDdp, [&](DistributedSetup& setup) { setup.sizes.*size = 2; });
  };
  EXPECT_EQ(finding(&ParallelismSizes::tp_size), "ddp does not support tensor parallelism");
  EXPECT_EQ(finding(&ParallelismSizes::pp_size), "ddp does not support pipeline parallelism");
  EXPECT_EQ(finding(&ParallelismSizes::cp_size), "ddp does not support context parallelism");
  EXPECT_EQ(finding(&ParallelismSizes::ep_size), "ddp does not support expert parallelism");
}

TEST(DDPConfig, to_dict) {
  DDPConfig config;
  config.activation_checkpointing = ActivationCheckpointingMode::kFull;
  const ConfigDict dict = config.to_dict();
  EXPECT_EQ(keys_of(dict),
            Names({"activation_checkpointing", "activation_checkpointing_scope", "backend",
                   "broadcast_buffers", "find_unused_parameters", "static_graph", "bucket_cap_mb",
                   "gradient_as_bucket_view", "autocast_dtype"}));
  EXPECT_EQ(*find(dict, "activation_checkpointing"), ConfigValue(true));
  EXPECT_EQ(*find(dict, "bucket_cap_mb"), ConfigValue());
}

}  // namespace
}  // namespace automodel::distributed

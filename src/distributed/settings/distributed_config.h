#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "core/field.h"
#include "distributed/settings/config_dict.h"
#include "mesh/mesh.h"

namespace automodel::distributed {

/// Whether layers recompute their activations in backward.
enum class ActivationCheckpointingMode { kOff, kFull, kSelective };

/// torch.distributed.fsdp.MixedPrecisionPolicy with its defaults: dtypes by name; an absent one
/// casts nothing.
struct MixedPrecisionPolicy {
  std::optional<std::string> param_dtype;
  std::optional<std::string> reduce_dtype;
  std::optional<std::string> output_dtype;
  bool cast_forward_inputs = true;

  static constexpr auto fields() {
    using P = MixedPrecisionPolicy;
    return std::tuple{
        field("param_dtype", &P::param_dtype,
              "dtype of gathered parameters and of computation; absent: as stored"),
        field("reduce_dtype", &P::reduce_dtype,
              "dtype in which gradients are reduced; absent: that of the gathered parameters"),
        field("output_dtype", &P::output_dtype,
              "dtype that a unit's output is cast to; absent: it is not cast"),
        field("cast_forward_inputs", &P::cast_forward_inputs,
              "cast a unit's floating inputs to param_dtype, if that is given; beside "
              "autocast_dtype not, by "
              "default")};
  }
};

/// torch.distributed.fsdp.CPUOffloadPolicy.
struct CPUOffloadPolicy {
  bool pin_memory = true;

  static constexpr auto fields() {
    return std::tuple{
        field("pin_memory", &CPUOffloadPolicy::pin_memory, "keep offloaded memory page-locked")};
  }
};

/// The policy of fsdp2 when a recipe has none, as in NeMo AutoModel 0.7.0: parameters and
/// computation in bfloat16, gradients reduced in float32, no cast of inputs or outputs.
MixedPrecisionPolicy default_mp_policy();

/// A warning or error about a setup.
struct SetupFinding {
  std::string key;  ///< option it belongs to, relative to `distributed`: "tp_size"
  std::string text;
};

/// The warning that enable_async_tensor_parallel turns sequence_parallel on, since it needs split
/// sequences; "" when it does not.
std::string async_tp_warning(bool enable_async_tensor_parallel, bool sequence_parallel);

/// Options of the fsdp2 strategy. Names and defaults are NeMo AutoModel's.
struct FSDP2Config {
  bool sequence_parallel = false;
  std::optional<std::map<std::string, std::string>> tp_plan;
  std::optional<std::string> tp_plan_name;  ///< tp_plan as a text
  bool patch_is_packed_sequence = false;
  std::optional<MixedPrecisionPolicy> mp_policy;
  std::optional<CPUOffloadPolicy> offload_policy;
  std::optional<std::string> autocast_dtype;
  ActivationCheckpointingMode activation_checkpointing = ActivationCheckpointingMode::kOff;
  std::vector<std::string> activation_checkpointing_scope = {"all"};
  bool defer_fsdp_grad_sync = true;
  std::optional<bool> reshard_after_forward;
  std::string backend = "nccl";
  bool enable_async_tensor_parallel = false;
  bool enable_compile = false;
  bool enable_fsdp2_prefetch = false;
  int64_t fsdp2_backward_prefetch_depth = 2;
  int64_t fsdp2_forward_prefetch_depth = 1;

  /// Upstream's __post_init__, called once the options are set: replaces an absent policy by the
  /// default, normalises scopes, and turns on what enable_async_tensor_parallel needs, with a
  /// warning. Throws UserError for a wrong scope.
  std::vector<SetupFinding> post_init();
  /// Every field by name. Policies are not expanded; `tp_plan` is the mapping or the plan's name.
  ConfigDict to_dict() const;

  static constexpr auto fields();
};

/// Options of the megatron_fsdp strategy. `tp_plan` is not among them: post_init takes it.
struct MegatronFSDPConfig {
  bool sequence_parallel = false;
  std::optional<std::vector<std::string>> megatron_fsdp_unit_modules;
  int64_t zero_dp_strategy = 3;
  /// What is sharded, by a name of nvfsdp_strategy_parallelize's argument, which has two more than
  /// there are numbers; it replaces zero_dp_strategy. Not among the fields, which are 0.7.0's.
  std::optional<std::string> data_parallel_sharding_strategy = std::nullopt;
  bool init_fsdp_with_meta_device = false;
  bool grad_reduce_in_fp32 = false;
  bool preserve_fp32_weights = false;
  bool overlap_grad_reduce = true;
  bool overlap_param_gather = true;
  bool check_for_nan_in_grad = true;
  bool report_nan_in_param_grad = false;
  bool average_in_collective = false;
  bool disable_bucketing = false;
  bool calculate_per_token_loss = false;
  bool keep_fp8_transpose_cache = false;
  bool nccl_ub = false;
  bool fsdp_double_buffer = false;
  ActivationCheckpointingMode activation_checkpointing = ActivationCheckpointingMode::kOff;
  std::string backend = "nccl";

  /// Upstream's __post_init__ with its InitVar: throws UserError for any `tp_plan`.
  std::vector<SetupFinding> post_init(
      const std::optional<std::map<std::string, std::string>>& tp_plan = std::nullopt);
  ConfigDict to_dict() const;

  static constexpr auto fields();
};

/// Options of the ddp strategy. Without `bucket_cap_mb` the first bucket has 1 MiB, the others 25.
struct DDPConfig {
  ActivationCheckpointingMode activation_checkpointing = ActivationCheckpointingMode::kOff;
  std::vector<std::string> activation_checkpointing_scope = {"all"};
  std::string backend = "nccl";
  bool broadcast_buffers = false;
  bool find_unused_parameters = false;
  bool static_graph = false;
  std::optional<int64_t> bucket_cap_mb;
  bool gradient_as_bucket_view = false;
  std::optional<std::string> autocast_dtype;

  /// Normalises the scopes; throws UserError for a wrong one.
  std::vector<SetupFinding> post_init();
  ConfigDict to_dict() const;

  static constexpr auto fields();
};

/// The options of one of the strategies.
using DistributedConfig = std::variant<FSDP2Config, MegatronFSDPConfig, DDPConfig>;

/// Expert-parallel options (`distributed.moe`).
struct MoEParallelizerConfig {
  bool ignore_router_for_ac = true;
  bool reshard_after_forward = false;
  std::optional<std::string> lm_head_precision;
  bool wrap_outer_model = true;
  std::optional<MixedPrecisionPolicy> mp_policy;

  static constexpr auto fields();
};

/// Pipeline options (`distributed.pipeline`).
struct PipelineConfig {
  std::string pp_schedule = "1f1b";
  std::optional<std::string> pp_schedule_csv;
  int64_t pp_microbatch_size = 1;
  int64_t pp_batch_size = 1;
  std::optional<int64_t> layers_per_stage;
  std::optional<std::string> round_virtual_stages_to_pp_multiple;
  std::optional<std::vector<std::vector<std::string>>> module_fqns_per_model_part;
  bool patch_inner_model = true;
  bool patch_causal_lm_model = true;
  bool patch_stage_backward_maybe_with_nosync = false;
  std::optional<std::string> dtype;
  bool scale_grads_in_schedule = false;
  std::optional<int64_t> pp_seq_len;
  bool pp_recv_buffer_pool = false;
  int64_t pp_recv_buffer_pool_slack = 2;

  static constexpr auto fields();
};

/// The sizes that a recipe sets; absent ones are inferred.
struct ParallelismSizes {
  std::optional<int64_t> dp_size;
  std::optional<int64_t> dp_replicate_size;
  std::optional<int64_t> tp_size = 1;
  std::optional<int64_t> pp_size = 1;
  std::optional<int64_t> cp_size = 1;
  std::optional<int64_t> ep_size = 1;

  static constexpr auto fields();
};

/// How the keys and values of other context-parallel ranks reach a rank's queries; torch's names.
enum class CpRotateMethod {
  kAllGather,  ///< all at once, while the rank attends to its own
  kAllToAll    ///< in a ring: one rank's are sent while another's are attended to
};

/// Options of context parallelism, for any strategy.
struct ContextParallelConfig {
  CpRotateMethod cp_rotate_method = CpRotateMethod::kAllGather;

  static constexpr auto fields();
};

enum class Strategy { kFsdp2, kMegatronFsdp, kDdp };

/// Everything under `distributed`. Only one strategy's options are used; the others stay default.
struct DistributedSetup {
  Strategy strategy = Strategy::kFsdp2;
  ParallelismSizes sizes;
  ContextParallelConfig context;
  FSDP2Config fsdp2;
  MegatronFSDPConfig megatron_fsdp;
  DDPConfig ddp;
  std::optional<PipelineConfig> pipeline;
  std::optional<MoEParallelizerConfig> moe;
};

/// The options of the setup's strategy.
DistributedConfig distributed_config(const DistributedSetup& setup);

/// "FSDP2Config(sequence_parallel: false, ...)": every option of the setup's strategy.
std::string describe(const DistributedSetup& setup);

/// The sizes in the mesh's form; absent ones are 1.
mesh::SizeRequest size_request(const ParallelismSizes& sizes);

/// The scopes of `activation_checkpointing_scope`, normalised as upstream does: lower case, split
/// at commas and plus signs, "all" for "default" and "auto", without repetition, in order; an empty
/// list becomes "all". Throws UserError with upstream's texts.
std::vector<std::string> normalize_activation_checkpointing_scope(
    const std::vector<std::string>& values);

/// Whether the scopes name the layers of a language model: "all" or "language".
bool has_language_scope(const std::vector<std::string>& scopes);

/// What a setup's strategy recomputes.
ActivationCheckpointingMode activation_checkpointing_mode(const DistributedSetup& setup);
const std::vector<std::string>& activation_checkpointing_scope(const DistributedSetup& setup);

/// dtype in which a setup's strategy multiplies matrices, on any number of ranks; absent: the
/// operands' own.
std::optional<std::string> autocast_dtype(const DistributedSetup& setup);

/// The policy by which a setup's units compute when they are sharded; absent if the strategy has
/// none. As upstream, the `moe` section's policy is the whole model's if that section has an effect
/// and sets one.
std::optional<MixedPrecisionPolicy> mixed_precision_policy(const DistributedSetup& setup);

/// Validates sizes and combinations for `world_size` ranks; returns all findings, with upstream's
/// texts.
std::vector<SetupFinding> check_setup(const DistributedSetup& setup, int64_t world_size);

/// Data-parallel ranks of a valid setup: world / (tp * cp * pp).
int64_t data_parallel_size(const DistributedSetup& setup, int64_t world_size);

/// "fsdp2", "megatron_fsdp", "ddp".
std::string_view strategy_name(Strategy strategy);

/// Text of autocast_dtype.
inline constexpr const char* kAutocastText =
    "bfloat16 or float16: matrix products and attention are computed in it; norms, softmax and "
    "loss in float32";

constexpr auto FSDP2Config::fields() {
  using C = FSDP2Config;
  return std::tuple{
      field("sequence_parallel", &C::sequence_parallel, "sequence parallelism in the TP plan"),
      field("tp_plan", &C::tp_plan,
            "module pattern -> parallel style, or a plan's name; absent: the model's own"),
      field("patch_is_packed_sequence", &C::patch_is_packed_sequence,
            "skip the probe for packed sequences")
          .without_effect("there is no such probe here: packing is stated by the batch"),
      field("mp_policy", &C::mp_policy,
            "mixed precision; absent: parameters in bfloat16, reduction in float32, no other "
            "cast"),
      field("offload_policy", &C::offload_policy, "keep sharded parameters in CPU memory"),
      field("autocast_dtype", &C::autocast_dtype, kAutocastText),
      field("activation_checkpointing", &C::activation_checkpointing,
            "recompute activations: false, true (full) or selective"),
      field("activation_checkpointing_scope", &C::activation_checkpointing_scope,
            "which parts recompute: all, language, vision, audio, multimodal")
          .or_one(),
      field("defer_fsdp_grad_sync", &C::defer_fsdp_grad_sync,
            "reduce gradients on the last micro-batch of a step only"),
      field("reshard_after_forward", &C::reshard_after_forward,
            "free gathered parameters after forward; absent: all but the last layer"),
      field("backend", &C::backend, "used where dist_env.backend is absent"),
      field("enable_async_tensor_parallel", &C::enable_async_tensor_parallel,
            "split sequences over tensor-parallel ranks (sequence_parallel), as overlapping needs "
            "it; collectives are not overlapped here"),
      field("enable_compile", &C::enable_compile, "torch.compile per layer")
          .without_effect("kernels are fused ahead of time here"),
      field("enable_fsdp2_prefetch", &C::enable_fsdp2_prefetch, "gather units ahead of their use"),
      field("fsdp2_backward_prefetch_depth", &C::fsdp2_backward_prefetch_depth,
            "units gathered ahead in backward")
          .at_least(0),
      field("fsdp2_forward_prefetch_depth", &C::fsdp2_forward_prefetch_depth,
            "units gathered ahead in forward; 0: none")
          .at_least(0)};
}

constexpr auto MegatronFSDPConfig::fields() {
  using C = MegatronFSDPConfig;
  return std::tuple{
      field("sequence_parallel", &C::sequence_parallel, "not supported by this strategy"),
      field("megatron_fsdp_unit_modules", &C::megatron_fsdp_unit_modules,
            "paths of classes that are units: the model's layers or experts, or "
            "torch.nn.Embedding; absent: its layers"),
      field("zero_dp_strategy", &C::zero_dp_strategy,
            "what is sharded: 0 nothing, 1 optimizer, 2 + gradients, 3 + parameters")
          .at_least(0)
          .at_most(3),
      field("init_fsdp_with_meta_device", &C::init_fsdp_with_meta_device,
            "build the model without memory first, which always is done here; refused with "
            "zero_dp_strategy 0"),
      field("grad_reduce_in_fp32", &C::grad_reduce_in_fp32, "reduce gradients in float32"),
      field("preserve_fp32_weights", &C::preserve_fp32_weights, "keep float32 master weights"),
      field("overlap_grad_reduce", &C::overlap_grad_reduce, "reduce gradients during backward"),
      field("overlap_param_gather", &C::overlap_param_gather, "gather parameters ahead"),
      field("check_for_nan_in_grad", &C::check_for_nan_in_grad,
            "stop at a gradient that is not finite, whatever stop_on_non_finite says"),
      field("report_nan_in_param_grad", &C::report_nan_in_param_grad,
            "the same where check_for_nan_in_grad is false"),
      field("average_in_collective", &C::average_in_collective, "average in the collective"),
      field("disable_bucketing", &C::disable_bucketing,
            "one collective per parameter group, which a unit always is here"),
      field("calculate_per_token_loss", &C::calculate_per_token_loss,
            "gradients are summed, not averaged"),
      field("keep_fp8_transpose_cache", &C::keep_fp8_transpose_cache,
            "keep fp8 transposes; nothing is in fp8 here"),
      field("nccl_ub", &C::nccl_ub, "NCCL user buffers; none are registered here"),
      field("fsdp_double_buffer", &C::fsdp_double_buffer,
            "two gather buffers; gathers always use freed memory again here"),
      field("activation_checkpointing", &C::activation_checkpointing,
            "recompute activations: false or true (full)"),
      field("backend", &C::backend, "used where dist_env.backend is absent")};
}

constexpr auto DDPConfig::fields() {
  using C = DDPConfig;
  return std::tuple{
      field("activation_checkpointing", &C::activation_checkpointing,
            "recompute activations: false, true (full) or selective"),
      field("activation_checkpointing_scope", &C::activation_checkpointing_scope,
            "which parts recompute: all, language, vision, audio, multimodal")
          .or_one(),
      field("backend", &C::backend, "used where dist_env.backend is absent"),
      field("broadcast_buffers", &C::broadcast_buffers, "send rank 0's buffers before forward")
          .without_effect("no forward changes a buffer, so all ranks have the same ones"),
      field("find_unused_parameters", &C::find_unused_parameters,
            "expect parameters without a gradient")
          .without_effect("unused parameters are always handled"),
      field("static_graph", &C::static_graph, "the graph is the same in every step")
          .without_effect("reductions do not depend on the graph here"),
      field("bucket_cap_mb", &C::bucket_cap_mb, "MiB of gradients per collective; absent: 25")
          .at_least(1),
      field("gradient_as_bucket_view", &C::gradient_as_bucket_view, "gradients are bucket views")
          .without_effect("gradients always are views of the buckets"),
      field("autocast_dtype", &C::autocast_dtype, kAutocastText)};
}

constexpr auto MoEParallelizerConfig::fields() {
  using C = MoEParallelizerConfig;
  return std::tuple{
      field("ignore_router_for_ac", &C::ignore_router_for_ac, "do not recompute the router")
          .without_effect("a router that is computed again chooses the same experts here"),
      field("reshard_after_forward", &C::reshard_after_forward, "free experts after forward"),
      field("lm_head_precision", &C::lm_head_precision, "dtype of the output head"),
      field("wrap_outer_model", &C::wrap_outer_model, "the outer model is a unit")
          .without_effect("the outermost unit always holds what no other one does"),
      field("mp_policy", &C::mp_policy, "mixed precision; absent: distributed.mp_policy")};
}

constexpr auto PipelineConfig::fields() {
  using C = PipelineConfig;
  constexpr const char* kNoPatches = "stages run the model's own forward here";
  return std::tuple{
      field("pp_schedule", &C::pp_schedule,
            "1F1B, GPipe, Interleaved1F1B, LoopedBFS, InterleavedZeroBubble or ZBVZeroBubble"),
      field("pp_schedule_csv", &C::pp_schedule_csv,
            "file with a schedule in torch's compute-only form; overrides the name"),
      field("pp_microbatch_size", &C::pp_microbatch_size, "sequences per pipeline micro-batch")
          .at_least(1),
      field("pp_batch_size", &C::pp_batch_size, "overwritten by local_batch_size")
          .at_least(1)
          .without_effect("step_scheduler.local_batch_size says it"),
      field("layers_per_stage", &C::layers_per_stage, "layers of a stage").at_least(1),
      field("round_virtual_stages_to_pp_multiple", &C::round_virtual_stages_to_pp_multiple,
            "up or down, where the stages are no multiple of pp_size"),
      field("module_fqns_per_model_part", &C::module_fqns_per_model_part,
            "modules of every stage, by name"),
      field("patch_inner_model", &C::patch_inner_model, "forward of the inner model")
          .without_effect(kNoPatches),
      field("patch_causal_lm_model", &C::patch_causal_lm_model, "forward of the outer model")
          .without_effect(kNoPatches),
      field("patch_stage_backward_maybe_with_nosync", &C::patch_stage_backward_maybe_with_nosync,
            "backward that defers reductions")
          .without_effect("defer_fsdp_grad_sync says when gradients are reduced"),
      field("dtype", &C::dtype, "dtype between stages; absent: that of the stages' outputs"),
      field("scale_grads_in_schedule", &C::scale_grads_in_schedule,
            "divide gradients by the number of micro-batches too"),
      field("pp_seq_len", &C::pp_seq_len, "sequence length between stages")
          .at_least(1)
          .without_effect("lengths are those of the batches"),
      field("pp_recv_buffer_pool", &C::pp_recv_buffer_pool, "reuse receive buffers")
          .without_effect("the allocator reuses memory"),
      field("pp_recv_buffer_pool_slack", &C::pp_recv_buffer_pool_slack, "spare receive buffers")
          .at_least(0)
          .without_effect("the allocator reuses memory")};
}

constexpr auto ParallelismSizes::fields() {
  using C = ParallelismSizes;
  constexpr double kMostModelRanks = 8192;  // products of sizes stay within 64 bits
  constexpr double kMostReplicas = 1 << 20;
  return std::tuple{
      field("dp_size", &C::dp_size, "data-parallel ranks; absent: all that is left")
          .at_least(1)
          .at_most(kMostReplicas),
      field("dp_replicate_size", &C::dp_replicate_size, "replicas in HSDP")
          .at_least(1)
          .at_most(kMostReplicas),
      field("tp_size", &C::tp_size, "tensor-parallel ranks").at_least(1).at_most(kMostModelRanks),
      field("pp_size", &C::pp_size, "pipeline stages").at_least(1).at_most(kMostModelRanks),
      field("cp_size", &C::cp_size, "context-parallel ranks").at_least(1).at_most(kMostModelRanks),
      field("ep_size", &C::ep_size, "expert-parallel ranks").at_least(1).at_most(kMostModelRanks)};
}

constexpr auto ContextParallelConfig::fields() {
  return std::tuple{field("cp_rotate_method", &ContextParallelConfig::cp_rotate_method,
                          "how keys and values reach the queries of other context-parallel ranks: "
                          "allgather, or alltoall in a ring")};
}

}  // namespace automodel::distributed

namespace automodel {

template <>
struct EnumNames<distributed::CpRotateMethod> {
  using M = distributed::CpRotateMethod;
  static constexpr std::array<std::pair<std::string_view, M>, 2> values = {
      {{"allgather", M::kAllGather}, {"alltoall", M::kAllToAll}}};
};

template <>
struct EnumNames<distributed::ActivationCheckpointingMode> {
  using M = distributed::ActivationCheckpointingMode;
  static constexpr std::array<std::pair<std::string_view, M>, 11> values = {{
      {"false", M::kOff},
      {"full", M::kFull},
      {"selective", M::kSelective},
      {"off", M::kOff},
      {"none", M::kOff},
      {"disabled", M::kOff},
      {"no", M::kOff},
      {"true", M::kFull},
      {"on", M::kFull},
      {"enabled", M::kFull},
      {"yes", M::kFull},
  }};
};

template <>
struct EnumNames<distributed::Strategy> {
  using S = distributed::Strategy;
  static constexpr std::array<std::pair<std::string_view, S>, 5> values = {{
      {"fsdp2", S::kFsdp2},
      {"megatron_fsdp", S::kMegatronFsdp},
      {"ddp", S::kDdp},
      {"megatron-fsdp", S::kMegatronFsdp},
      {"mfsdp", S::kMegatronFsdp},
  }};
};

}  // namespace automodel

#include "distributed/parallelizer.h"

#include <algorithm>

#include "core/error.h"
#include "distributed/context_parallel.h"
#include "distributed/data_parallel.h"
#include "distributed/expert_parallel.h"
#include "distributed/fully_sharded.h"
#include "distributed/recompute.h"
#include "distributed/split_engine.h"
#include "distributed/tensor_parallel.h"

namespace automodel::distributed {

namespace {

/// Splits the model over the tensor-parallel ranks; nothing for one rank.
std::optional<SplitModule> split(const ParallelModel& model, const comm::ProcessGroup& tp,
                                 const TpPlanChoice& choice, bool sequence_parallel) {
  if (tp.size() == 1) return std::nullopt;
  validate_tp_mesh(model.facts, tp.size());
  const TpShardPlan plan = get_parallel_plan(model.facts, sequence_parallel, choice);
  const TpLayerPlan layers =
      plan_layers(model.module, model.facts, plan,
                  {.tp_size = tp.size(), .sequence_parallel = sequence_parallel});
  if (!layers.findings.empty()) throw UserError(layers.findings[0].text);
  SplitModule split = split_module(model.module, model.facts, layers, tp, sequence_parallel);
  if (split.loss_head) model.set_loss_head(split.loss_head);
  return split;
}

const tensor::KeyMap& keys_of(const ParallelModel& model, const std::optional<SplitModule>& split) {
  return split ? split->keys : model.facts.keys;
}

/// Lets the model's attention reach over the context-parallel ranks.
void spread_attention(const ParallelModel& model, const DeviceMesh& mesh, const std::string& axis,
                      CpRotateMethod method) {
  if (!model.set_attention_core || !mesh.has(axis) || mesh.size(axis) == 1) return;
  model.set_attention_core(make_context_parallel_core(mesh.group(axis), method));
}

/// Leaves this rank its experts; nothing on a mesh without an ep axis.
std::optional<SplitExperts> take_experts(const ParallelModel& model, const tensor::KeyMap& keys,
                                         const DeviceMesh& mesh,
                                         const ParallelizeOptions& options) {
  if (!mesh.has(options.ep_mesh_name)) return std::nullopt;
  const comm::ProcessGroup& tp = mesh.group(options.tp_mesh_name);
  // Ranks with their own part of the sequence have their own tokens.
  const ExpertGroups groups{mesh.group(options.ep_mesh_name),
                            options.sequence_parallel ? comm::ProcessGroup::solo("tp") : tp};
  return split_experts(model.module, model.facts.plan, keys, groups);
}

/// That of the `moe` section, where it acts and has one, is the whole model's, as upstream.
MixedPrecisionPolicy policy_of(const ParallelizeOptions& options, bool splits_experts) {
  if (splits_experts && options.moe.mp_policy) return *options.moe.mp_policy;
  return options.mp_policy.value_or(MixedPrecisionPolicy::unwritten());
}

/// Gives the model memory: sharded, or, where one rank would hold everything, plain.
std::unique_ptr<Engine> give_memory(const ParallelModel& model, const tensor::KeyMap& keys,
                                    const ShardingGroups& groups, const ShardingOptions& options,
                                    const UnitChoices& choices = {}, bool keeps = false) {
  const int num_ranks = groups.all.size();
  if (num_ranks > 1 || choices.has_split_experts) {
    auto* logits = dynamic_cast<nn::GivesLogits*>(&model.module);
    // The root's outputs are the logits.
    if (logits != nullptr && options.output_dtype) logits->set_logits_dtype(*options.output_dtype);
    auto engine = std::make_unique<FullySharded>(model.module, keys, groups,
                                                 fitted_to(options, num_ranks), choices);
    if (keeps) engine->keep_between_micro_batches();
    return engine;
  }
  return std::make_unique<DataParallel>(
      model.module, model.facts.plan, keys, groups.all,
      DataParallelOptions{.device = options.device, .gradient_check = options.gradient_check});
}

std::unique_ptr<Engine> join_ranks(std::unique_ptr<Engine> engine, const comm::ProcessGroup& tp,
                                   const std::optional<SplitModule>& split) {
  if (!split) return engine;
  return std::make_unique<SplitEngine>(std::move(engine), tp, *split);
}

}  // namespace

std::unique_ptr<Engine> DefaultParallelizationStrategy::parallelize(
    const ParallelModel& model, const DeviceMesh& mesh, const ParallelizeOptions& options) const {
  const comm::ProcessGroup& tp = mesh.group(options.tp_mesh_name);
  const ShardingGroups groups = sharding_groups(
      mesh, options.dp_replicate_mesh_name, options.dp_shard_cp_mesh_name, options.dp_mesh_name);
  const std::string finding =
      async_tp_finding(options.enable_async_tensor_parallel, options.sequence_parallel);
  if (tp.size() > 1 && !finding.empty()) throw UserError(finding);
  // Each step lies around what the one before it made.
  const auto parts = split(model, tp, options.tp_shard_plan, options.sequence_parallel);
  spread_attention(model, mesh, options.cp_mesh_name, options.cp_rotate_method);
  const auto experts = take_experts(model, keys_of(model, parts), mesh, options);
  recompute_blocks(model.module, model.facts.plan, options.activation_checkpointing);
  ShardingOptions sharding = options.sharding;
  apply_policy(policy_of(options, experts.has_value()), sharding);
  sharding.offload_policy = options.offload_policy;
  if (experts) {
    if (!sharding.reshard_after_forward) {
      sharding.reshard_after_forward = options.moe.reshard_after_forward;
    }
    ShardingOptions own = sharding;
    own.output_dtype.reset();  // the layer around them goes on in its own
    shard_experts(*experts, mesh.group(options.ep_shard_mesh_name), own, groups.all.size());
  }
  const UnitChoices choices{untied_tables(model.module, model.facts.plan),
                            experts ? own_head_dtype(options.moe) : std::nullopt,
                            experts.has_value(),
                            experts ? ShardFunction(fully_shard) : shard_function()};
  const bool keeps = options.enable_fsdp_optimizations && !model.facts.plan.expert_modules.empty();
  return join_ranks(give_memory(model, experts ? experts->keys : keys_of(model, parts), groups,
                                sharding, choices, keeps),
                    tp, parts);
}

ShardFunction DefaultParallelizationStrategy::shard_function() const {
  return fully_shard;
}

void StrategyRegistry::register_parallel_strategy(
    const std::string& name, std::unique_ptr<ParallelizationStrategy> strategy) {
  if (name.empty()) throw UserError("name is required");
  if (!strategies_.emplace(name, std::move(strategy)).second) {
    throw UserError(cat(name, " already registered"));
  }
}

const ParallelizationStrategy& StrategyRegistry::get_parallelization_strategy(
    const std::string& name) const {
  const auto found = strategies_.find(name);
  if (found == strategies_.end()) return default_;
  return *found->second;
}

std::unique_ptr<Engine> fsdp2_strategy_parallelize(const ParallelModel& model,
                                                   const DeviceMesh& mesh,
                                                   const ParallelizeOptions& options,
                                                   const StrategyRegistry& registry) {
  return registry.get_parallelization_strategy(model.facts.architecture)
      .parallelize(model, mesh, options);
}

namespace {

/// By zero_dp_strategy.
constexpr const char* kZeroStrategies[] = {"no_shard", "optim", "optim_grads",
                                           "optim_grads_params"};

struct ZeroPlacement {
  Placement parameters;
  Placement gradients;
};

ZeroPlacement placement_of(const std::string& strategy) {
  using enum Placement;
  if (strategy == "no_shard" || strategy == "optim") return {kReplicated, kReplicated};
  if (strategy == "optim_grads") return {kReplicated, kSharded};
  if (strategy == "params") return {kSharded, kReplicated};
  if (strategy == "optim_grads_params" || strategy == "grads_params") return {kSharded, kSharded};
  throw UserError(cat(
      "unknown data_parallel_sharding_strategy '", strategy, "': one of ",
      join(std::vector<std::string>(std::begin(kZeroStrategies), std::end(kZeroStrategies)), ", "),
      ", params, grads_params"));
}

GradientCheck gradient_check_of(const NvfsdpOptions& options) {
  if (options.report_nan_in_param_grad) return GradientCheck::kNonFinite;
  return options.check_for_nan_in_grad ? GradientCheck::kNan : GradientCheck::kNone;
}

}  // namespace

ShardingOptions nvfsdp_sharding(const NvfsdpOptions& options) {
  const auto [parameters, gradients] = placement_of(options.data_parallel_sharding_strategy);
  ShardingOptions sharding;
  sharding.device = options.device;
  sharding.trace = options.trace;
  sharding.parameters = parameters;
  sharding.gradients = gradients;
  // Sharded gradients add up in the part that a rank keeps.
  sharding.defers_gradients = gradients == Placement::kReplicated;
  if (options.preserve_fp32_weights) sharding.main_dtype = at::kFloat;
  if (options.grad_reduce_in_fp32) {
    sharding.reduce_dtype = at::kFloat;
    sharding.gradient_dtype = at::kFloat;
  }
  sharding.scaling = options.calculate_per_token_loss ? GradientScaling::kSum
                     : options.average_in_collective  ? GradientScaling::kAverage
                                                      : GradientScaling::kDivideThenSum;
  sharding.reshard_after_forward = true;
  sharding.overlaps_reductions = options.overlap_grad_reduce || gradients == Placement::kSharded ||
                                 parameters == Placement::kSharded;
  if (options.overlap_param_gather || parameters == Placement::kSharded) {
    sharding.forward_prefetch_depth = 1;
    sharding.backward_prefetch_depth = 1;
  }
  sharding.gradient_check = gradient_check_of(options);
  return sharding;
}

NvfsdpOptions nvfsdp_options(const MegatronFSDPConfig& config) {
  NvfsdpOptions options;
  options.nvfsdp_unit_modules = config.megatron_fsdp_unit_modules;
  options.data_parallel_sharding_strategy =
      kZeroStrategies[static_cast<size_t>(config.zero_dp_strategy)];
  options.init_nvfsdp_with_meta_device = config.init_fsdp_with_meta_device;
  options.grad_reduce_in_fp32 = config.grad_reduce_in_fp32;
  options.preserve_fp32_weights = config.preserve_fp32_weights;
  options.overlap_grad_reduce = config.overlap_grad_reduce;
  options.overlap_param_gather = config.overlap_param_gather;
  options.check_for_nan_in_grad = config.check_for_nan_in_grad;
  options.report_nan_in_param_grad = config.report_nan_in_param_grad;
  options.average_in_collective = config.average_in_collective;
  options.disable_bucketing = config.disable_bucketing;
  options.calculate_per_token_loss = config.calculate_per_token_loss;
  options.keep_fp8_transpose_cache_when_using_custom_fsdp = config.keep_fp8_transpose_cache;
  options.nccl_ub = config.nccl_ub;
  options.fsdp_double_buffer = config.fsdp_double_buffer;
  options.activation_checkpointing = config.activation_checkpointing;
  return options;
}

ShardingOptions sharding_options(const MegatronFSDPConfig& config, at::Device device) {
  NvfsdpOptions options = nvfsdp_options(config);
  options.device = device;
  return nvfsdp_sharding(options);
}

namespace {

/// Throws when the classes that are to be units are none of the model's.
void check_unit_classes(const ParallelModel& model, const NvfsdpOptions& options,
                        Reporter& reporter) {
  if (!options.nvfsdp_unit_modules) return;
  const std::string layer = layer_class_of(model.facts.architecture);
  for (const ModuleClass& unit :
       import_classes_from_paths(*options.nvfsdp_unit_modules, reporter)) {
    if (unit.name == layer) return;
  }
  throw UserError(cat("none of the unit modules is in ", model.facts.architecture,
                      ", whose layers are of class ", layer));
}

}  // namespace

std::unique_ptr<Engine> nvfsdp_strategy_parallelize(const ParallelModel& model,
                                                    const DeviceMesh& mesh,
                                                    const NvfsdpOptions& options,
                                                    Reporter& reporter) {
  if (!options.is_available) {
    throw UserError("nvFSDP is not installed: this build leaves the engine out");
  }
  ShardingOptions sharding = nvfsdp_sharding(options);
  const bool is_whole = options.data_parallel_sharding_strategy == "no_shard";
  if (options.init_nvfsdp_with_meta_device && is_whole) {
    throw UserError("init_nvfsdp_with_meta_device needs parameters or an optimizer to shard");
  }
  check_unit_classes(model, options, reporter);
  const comm::ProcessGroup& tp = mesh.group(options.tp_mesh_name);
  const bool has_cp = mesh.size(options.cp_mesh_name) > 1;
  const comm::ProcessGroup& dp = mesh.group(has_cp ? "dp_cp" : options.dp_mesh_name);
  if (mesh.has("dp_replicate") && mesh.size("dp_replicate") > 1) {
    throw UserError("Hybrid-sharding not supported");
  }
  const auto parts = split(model, tp, options.tp_shard_plan, false);
  spread_attention(model, mesh, options.cp_mesh_name, options.cp_rotate_method);
  recompute_blocks(model.module, model.facts.plan, options.activation_checkpointing);
  const ShardingGroups groups = is_whole
                                    ? ShardingGroups{dp, comm::ProcessGroup::solo("dp_shard"), dp}
                                    : ShardingGroups::of(dp);
  auto engine = join_ranks(give_memory(model, keys_of(model, parts), groups, sharding), tp, parts);
  if (options.optimizer) options.optimizer(*engine);
  return engine;
}

namespace {

/// Module of transformers, and class of its layers.
constexpr std::pair<std::string_view, std::string_view> kLayerClasses[] = {
    {"llama", "LlamaDecoderLayer"},
    {"qwen2", "Qwen2DecoderLayer"},
    {"qwen3", "Qwen3DecoderLayer"},
    {"mistral", "MistralDecoderLayer"},
    {"phi3", "Phi3DecoderLayer"},
    {"gemma", "GemmaDecoderLayer"},
    {"gemma2", "Gemma2DecoderLayer"},
    {"gemma3", "Gemma3DecoderLayer"},
    {"gpt2", "GPT2Block"},
    {"olmo2", "Olmo2DecoderLayer"},
    {"granite", "GraniteDecoderLayer"},
    {"qwen3_moe", "Qwen3MoeDecoderLayer"},
    {"mixtral", "MixtralDecoderLayer"},
    {"glm4_moe", "Glm4MoeDecoderLayer"},
    {"deepseek_v3", "DeepseekV3DecoderLayer"},
    {"gpt_oss", "GptOssDecoderLayer"},
    {"diffusion_gemma", "DiffusionGemmaDecoderTextLayer"}};

}  // namespace

ModuleClass import_class_from_path(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos) {
    throw UserError(cat("'", path, "' is no path of a class: expected module.Class"));
  }
  std::vector<std::string> known;
  for (const auto& [module, name] : kLayerClasses) {
    known.push_back(cat("transformers.models.", module, ".modeling_", module, ".", name));
    if (known.back() == path) return {path, path.substr(dot + 1)};
  }
  throw UserError(cat("no class ", path, did_you_mean(path, known)));
}

std::vector<ModuleClass> import_classes_from_paths(const std::vector<std::string>& paths,
                                                   Reporter& reporter) {
  std::vector<ModuleClass> classes;
  for (const std::string& path : paths) {
    try {
      classes.push_back(import_class_from_path(path));
    } catch (const UserError& error) {
      reporter.warning(cat("Could not import class from path ", path, ": ", error.what()));
    }
  }
  return classes;
}

std::string layer_class_of(std::string_view architecture) {
  if (architecture.starts_with("GPT2")) return "GPT2Block";
  if (architecture.starts_with("DiffusionGemma")) return "DiffusionGemmaDecoderTextLayer";
  const size_t end = architecture.find("For");
  return cat(architecture.substr(0, end), "DecoderLayer");
}

}  // namespace automodel::distributed

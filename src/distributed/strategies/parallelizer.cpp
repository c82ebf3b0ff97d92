#include "distributed/strategies/parallelizer.h"

#include <algorithm>

#include "core/error.h"
#include "distributed/expert/expert_parallel.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/recompute/recompute.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "distributed/strategies/parallelize_steps.h"

namespace automodel::distributed {

namespace {

/// Keeps only this rank's experts; does nothing on a mesh without an ep axis.
std::optional<SplitExperts> take_experts(const ParallelModel& model, const tensor::KeyMap& keys,
                                         const DeviceMesh& mesh, const ParallelizeOptions& options,
                                         bool splits_sequence) {
  if (!mesh.has(options.ep_mesh_name)) return std::nullopt;
  const comm::ProcessGroup& tp = mesh.group(options.tp_mesh_name);
  // With split sequences tensor-parallel ranks have different tokens.
  const ExpertGroups groups{mesh.group(options.ep_mesh_name),
                            splits_sequence ? comm::ProcessGroup::solo("tp") : tp};
  return split_experts(model.module, model.facts.plan, keys, groups);
}

/// The policy of the whole model, as upstream: the `moe` section's if experts are split and it sets
/// one, otherwise the strategy's.
MixedPrecisionPolicy policy_of(const ParallelizeOptions& options, bool splits_experts) {
  if (splits_experts && options.moe.mp_policy) return *options.moe.mp_policy;
  return options.mp_policy.value_or(default_mp_policy());
}

void warn(const ParallelizeOptions& options, const std::string& text) {
  if (options.reporter != nullptr && !text.empty()) options.reporter->warning(text);
}

}  // namespace

std::unique_ptr<Engine> DefaultParallelizationStrategy::parallelize(
    const ParallelModel& model, const DeviceMesh& mesh, const ParallelizeOptions& options) const {
  const comm::ProcessGroup& tp = mesh.group(options.tp_mesh_name);
  const ShardingGroups groups = sharding_groups(
      mesh, options.dp_replicate_mesh_name, options.dp_shard_cp_mesh_name, options.dp_mesh_name);
  const std::string forced =
      async_tp_warning(options.enable_async_tensor_parallel, options.sequence_parallel);
  warn(options, forced);
  const bool splits_sequence = options.sequence_parallel || !forced.empty();
  // Each step lies around what the one before it made.
  const auto parts = split_over_tp(model, tp, options.tp_shard_plan, splits_sequence);
  spread_attention(model, mesh, options.cp_mesh_name, options.cp_rotate_method);
  const auto experts = take_experts(model, keys_of(model, parts), mesh, options, splits_sequence);
  if (options.offload_policy && groups.all.size() == 1 && !experts) {
    warn(options, "offload_policy has no effect: one rank holds everything, nothing is sharded");
  }
  recompute_blocks(model.module, model.facts.plan, options.activation_checkpointing);
  ShardingOptions sharding = options.sharding;
  apply_policy(policy_of(options, experts.has_value()), sharding);
  sharding.offload_policy = options.offload_policy;
  if (experts) {
    if (!sharding.reshard_after_forward) {
      sharding.reshard_after_forward = options.moe.reshard_after_forward;
    }
    ShardingOptions own = sharding;
    own.output_dtype.reset();  // experts return their layer's dtype
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

PlannedUnits DefaultParallelizationStrategy::planned_units(const ParallelModel& model,
                                                           const ParallelizeOptions&) const {
  return {model.facts.plan.blocks, untied_tables(model.module, model.facts.plan), {}};
}

namespace {

/// Replicas: every rank holds everything, and gradients are averaged in buckets.
class DefaultReplicaStrategy final : public ReplicaStrategy {
 public:
  std::unique_ptr<Engine> parallelize(const ParallelModel& model, const DeviceMesh& mesh,
                                      const ReplicaOptions& options) const override {
    const nn::ParallelPlan& plan = model.facts.plan;
    recompute_blocks(model.module, plan, options.activation_checkpointing);
    return std::make_unique<DataParallel>(model.module, plan, model.facts.keys,
                                          mesh.group(options.dp_mesh_name), options.replicas);
  }

  PlannedUnits planned_units(const ParallelModel& model, const ReplicaOptions&) const override {
    return {model.facts.plan.blocks, {}, {}};
  }
};

template <typename Strategies, typename Strategy>
void add(Strategies& strategies, const std::string& name, std::unique_ptr<Strategy> strategy) {
  if (name.empty()) throw UserError("name is required");
  if (strategy == nullptr) throw UserError(cat(name, ": a strategy is required"));
  const bool is_new = strategies.by_class.emplace(name, std::move(strategy)).second;
  if (!is_new) throw UserError(cat(name, " already registered"));
}

}  // namespace

StrategyRegistry::StrategyRegistry() {
  std::get<0>(strategies_).fallback = std::make_unique<DefaultParallelizationStrategy>();
  std::get<1>(strategies_).fallback = make_nvfsdp_strategy();
  std::get<2>(strategies_).fallback = std::make_unique<DefaultReplicaStrategy>();
}

void StrategyRegistry::register_parallel_strategy(
    const std::string& name, std::unique_ptr<ParallelizationStrategy> strategy) {
  add(std::get<0>(strategies_), name, std::move(strategy));
}

void StrategyRegistry::register_parallel_strategy(const std::string& name,
                                                  std::unique_ptr<NvfsdpStrategy> strategy) {
  add(std::get<1>(strategies_), name, std::move(strategy));
}

void StrategyRegistry::register_parallel_strategy(const std::string& name,
                                                  std::unique_ptr<ReplicaStrategy> strategy) {
  add(std::get<2>(strategies_), name, std::move(strategy));
}

std::unique_ptr<Engine> fsdp2_strategy_parallelize(const ParallelModel& model,
                                                   const DeviceMesh& mesh,
                                                   const ParallelizeOptions& options,
                                                   const StrategyRegistry& registry) {
  return registry.get_parallelization_strategy(model.facts.architecture)
      .parallelize(model, mesh, options);
}

std::unique_ptr<Engine> nvfsdp_strategy_parallelize(const ParallelModel& model,
                                                    const DeviceMesh& mesh,
                                                    const NvfsdpOptions& options,
                                                    Reporter& reporter,
                                                    const StrategyRegistry& registry) {
  NvfsdpOptions with_reporter = options;
  with_reporter.reporter = &reporter;
  return registry.get_parallelization_strategy<NvfsdpOptions>(model.facts.architecture)
      .parallelize(model, mesh, with_reporter);
}

std::unique_ptr<Engine> ddp_strategy_parallelize(const ParallelModel& model, const DeviceMesh& mesh,
                                                 const ReplicaOptions& options,
                                                 const StrategyRegistry& registry) {
  return registry.get_parallelization_strategy<ReplicaOptions>(model.facts.architecture)
      .parallelize(model, mesh, options);
}

}  // namespace automodel::distributed

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "core/reporter.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/engine/engine.h"
#include "distributed/engine/sharded_engine.h"
#include "distributed/fsdp/sharding_options.h"
#include "distributed/groups/device_mesh.h"
#include "distributed/settings/class_table.h"
#include "distributed/settings/distributed_config.h"
#include "distributed/strategies/nvfsdp.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "distributed/strategies/parallel_model.h"
#include "distributed/tensor/tp_plan.h"

namespace automodel::distributed {

/// Arguments of fsdp2_strategy_parallelize beside the model and the mesh, with upstream's names and
/// defaults.
struct ParallelizeOptions {
  std::optional<MixedPrecisionPolicy> mp_policy;  ///< absent: default_mp_policy()
  std::optional<CPUOffloadPolicy> offload_policy;
  bool sequence_parallel = false;
  ActivationCheckpointingMode activation_checkpointing = ActivationCheckpointingMode::kOff;
  TpPlanChoice tp_shard_plan;  ///< takes precedence over every other plan
  std::string dp_replicate_mesh_name = "dp_replicate";
  std::string dp_shard_cp_mesh_name = "dp_shard_cp";
  std::string tp_mesh_name = "tp";
  std::string cp_mesh_name = "cp";  ///< the mesh may lack it
  CpRotateMethod cp_rotate_method = CpRotateMethod::kAllGather;
  /// The ranks whose gradients are averaged. If the mesh lacks this axis, it is joined from
  /// dp_replicate_mesh_name and dp_shard_cp_mesh_name.
  std::string dp_mesh_name = "dp_cp";
  bool enable_async_tensor_parallel = false;  ///< turns sequence_parallel on, with a warning
  /// If the mesh has these axes, experts are split over `ep_mesh_name` and sharded over
  /// `ep_shard_mesh_name`; `moe` has the options.
  std::string ep_mesh_name = "ep";
  std::string ep_shard_mesh_name = "ep_shard";
  MoEParallelizerConfig moe;
  /// Whether models with experts keep gathered parameters and whole gradients between the
  /// micro-batches of a step (MoEFSDPSyncMixin); no effect on other models. Upstream's backend
  /// option.
  bool enable_fsdp_optimizations = false;
  /// Everything else about the units: device, prefetching, resharding, trace. The policies above
  /// replace its dtypes and offloading.
  ShardingOptions sharding;
  Reporter* reporter = nullptr;  ///< takes warnings; may be null
};

using ParallelizationStrategy = StrategyOf<ParallelizeOptions>;

/// The strategy of every model class that has none of its own: tensor, context and expert
/// parallelism, activation checkpointing, then sharding of the experts, the layer lists and the
/// root.
class DefaultParallelizationStrategy : public ParallelizationStrategy {
 public:
  std::unique_ptr<Engine> parallelize(const ParallelModel& model, const DeviceMesh& mesh,
                                      const ParallelizeOptions& options) const override;
  PlannedUnits planned_units(const ParallelModel& model,
                             const ParallelizeOptions& options) const override;

 protected:
  /// The function that shards an element of a layer list when experts are not split; strategies of
  /// model classes override it.
  virtual ShardFunction shard_function() const;
};

/// Arguments of ddp_strategy_parallelize beside the model and the mesh.
struct ReplicaOptions {
  ActivationCheckpointingMode activation_checkpointing = ActivationCheckpointingMode::kOff;
  std::string dp_mesh_name = "dp";
  DataParallelOptions replicas;
};

using ReplicaStrategy = StrategyOf<ReplicaOptions>;

/// The strategies of fsdp2, megatron_fsdp and ddp, which the type of their options tells apart, by
/// the name of the model's class ("LlamaForCausalLM").
class StrategyRegistry final {
 public:
  /// Contains the three default strategies.
  StrategyRegistry();

  /// Throws UserError "name is required" for an empty name, "<name> already registered" for a taken
  /// one, and for a null strategy.
  void register_parallel_strategy(const std::string& name,
                                  std::unique_ptr<ParallelizationStrategy> strategy);
  void register_parallel_strategy(const std::string& name,
                                  std::unique_ptr<NvfsdpStrategy> strategy);
  void register_parallel_strategy(const std::string& name,
                                  std::unique_ptr<ReplicaStrategy> strategy);

  /// The class's own strategy, else the default one.
  template <typename Options = ParallelizeOptions>
  const StrategyOf<Options>& get_parallelization_strategy(const std::string& name) const {
    const auto& [by_class, fallback] = std::get<ByClass<Options>>(strategies_);
    const auto found = by_class.find(name);
    return found == by_class.end() ? *fallback : *found->second;
  }

  template <typename Options = ParallelizeOptions>
  bool has(const std::string& name) const {
    return std::get<ByClass<Options>>(strategies_).by_class.contains(name);
  }

 private:
  template <typename Options>
  struct ByClass {
    std::map<std::string, std::unique_ptr<StrategyOf<Options>>> by_class;
    std::unique_ptr<StrategyOf<Options>> fallback;
  };

  std::tuple<ByClass<ParallelizeOptions>, ByClass<NvfsdpOptions>, ByClass<ReplicaOptions>>
      strategies_;
};

/// Looks up the model's strategy and parallelizes the model. Returns the engine through which the
/// model is trained.
std::unique_ptr<Engine> fsdp2_strategy_parallelize(const ParallelModel& model,
                                                   const DeviceMesh& mesh,
                                                   const ParallelizeOptions& options,
                                                   const StrategyRegistry& registry = {});

/// Parallelizes by Megatron-FSDP: shards over the axis dp_mesh_name, or with context-parallel ranks
/// over both ("dp_cp"). Throws UserError "nvFSDP is not installed ..." in a build without it,
/// "Hybrid-sharding not supported" on a mesh with replicas, and when no unit class belongs to the
/// model.
std::unique_ptr<Engine> nvfsdp_strategy_parallelize(const ParallelModel& model,
                                                    const DeviceMesh& mesh,
                                                    const NvfsdpOptions& options,
                                                    Reporter& reporter,
                                                    const StrategyRegistry& registry = {});

/// Parallelizes by DDP: replicas over the axis dp_mesh_name.
std::unique_ptr<Engine> ddp_strategy_parallelize(const ParallelModel& model, const DeviceMesh& mesh,
                                                 const ReplicaOptions& options,
                                                 const StrategyRegistry& registry = {});

}  // namespace automodel::distributed

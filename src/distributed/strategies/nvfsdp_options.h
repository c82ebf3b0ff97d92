#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/reporter.h"
#include "distributed/fsdp/sharding_options.h"
#include "distributed/settings/class_table.h"
#include "distributed/settings/distributed_config.h"
#include "distributed/strategies/parallel_model.h"

namespace automodel::distributed {

/// Arguments of nvfsdp_strategy_parallelize beside the model and the mesh; upstream's defaults.
struct NvfsdpOptions {
  /// Sharding, reductions, recomputation and the classes of units, under the names of upstream's
  /// config (its nvfsdp_unit_modules, init_nvfsdp_with_meta_device and
  /// keep_fp8_transpose_cache_when_using_custom_fsdp are called otherwise there). Without unit
  /// classes the whole model is one unit.
  MegatronFSDPConfig config;
  /// Makes the optimizer once the model is sharded; may be empty.
  std::function<void(Engine&)> optimizer;
  TpPlanChoice tp_shard_plan;  ///< used when the mesh has tensor-parallel ranks
  /// In place of config.zero_dp_strategy (0 to 3): "no_shard", "optim", "optim_grads",
  /// "optim_grads_params"; the documentation's other names too: "params" shards parameters and
  /// keeps gradients whole, "grads_params" shards both. An optimizer only ever sees its rank's
  /// range.
  std::optional<std::string> data_parallel_sharding_strategy;
  std::string dp_mesh_name = "dp";
  std::string cp_mesh_name = "cp";
  std::string tp_mesh_name = "tp";
  CpRotateMethod cp_rotate_method = CpRotateMethod::kAllGather;
  at::Device device = at::kCPU;
  TraceSink* trace = nullptr;
  ClassTable classes = module_classes();  ///< what the paths of unit modules may mean
  Reporter* reporter = nullptr;           ///< is told of paths that mean nothing; may be null
};

/// The strategy by its name. UserError for a zero_dp_strategy outside 0 to 3.
std::string data_parallel_sharding_strategy(const NvfsdpOptions& options);

/// The sharding that the options mean. UserError naming the valid strategies.
ShardingOptions nvfsdp_sharding(const NvfsdpOptions& options);

/// The sharding of a recipe's megatron_fsdp section, by nvfsdp_sharding.
ShardingOptions sharding_options(const MegatronFSDPConfig& config, at::Device device);

/// A recipe's megatron_fsdp section as arguments for a class of models: without unit modules those
/// are its layers, by the table, which the arguments keep.
NvfsdpOptions nvfsdp_options(const MegatronFSDPConfig& config, const std::string& architecture = "",
                             const ClassTable& classes = module_classes());

/// The modules that the unit classes choose; of modules inside each other the outer one. UserError
/// when no class is one of the model's, or when a module cannot be a unit.
PlannedUnits chosen_units(const ParallelModel& model, const NvfsdpOptions& options);

}  // namespace automodel::distributed

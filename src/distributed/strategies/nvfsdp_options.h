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

/// Arguments of nvfsdp_strategy_parallelize beside the model and the mesh, with upstream's
/// defaults.
struct NvfsdpOptions {
  /// Sharding, reductions, recomputation and the classes of units, under the names of upstream's
  /// config (upstream's arguments are named nvfsdp_unit_modules, init_nvfsdp_with_meta_device and
  /// keep_fp8_transpose_cache_when_using_custom_fsdp). Without unit classes the whole model is one
  /// unit.
  MegatronFSDPConfig config;
  /// Makes the optimizer after the model is sharded; may be empty.
  std::function<void(Engine&)> optimizer;
  TpPlanChoice tp_shard_plan;  ///< used when the mesh has tensor-parallel ranks
  /// Replaces config.zero_dp_strategy (0 to 3): "no_shard", "optim", "optim_grads",
  /// "optim_grads_params", and two more names of the documentation: "params" shards parameters and
  /// keeps gradients whole, "grads_params" shards both. An optimizer always sees its rank's range
  /// only.
  std::optional<std::string> data_parallel_sharding_strategy;
  std::string dp_mesh_name = "dp";
  std::string cp_mesh_name = "cp";
  std::string tp_mesh_name = "tp";
  CpRotateMethod cp_rotate_method = CpRotateMethod::kAllGather;
  at::Device device = at::kCPU;
  int64_t border_numel = 1;  ///< as in ShardingOptions
  TraceSink* trace = nullptr;
  ClassTable classes = module_classes();  ///< classes that the paths of unit modules may name
  Reporter* reporter = nullptr;           ///< gets warnings of unknown paths; may be null
};

/// The strategy by its name. Throws UserError for a zero_dp_strategy outside 0 to 3.
std::string data_parallel_sharding_strategy(const NvfsdpOptions& options);

/// The sharding that the options ask for. Throws UserError listing the valid strategies.
ShardingOptions nvfsdp_sharding(const NvfsdpOptions& options);

/// Whether every rank holds everything under the section (ZeRO 0). Throws as the function above.
bool shards_nothing(const MegatronFSDPConfig& config);

/// The sharding of a recipe's megatron_fsdp section, by nvfsdp_sharding.
ShardingOptions sharding_options(const MegatronFSDPConfig& config, at::Device device);

/// A recipe's megatron_fsdp section as arguments for a class of models. Without unit modules the
/// model's layers are taken, as the table names them; the arguments keep the table.
NvfsdpOptions nvfsdp_options(const MegatronFSDPConfig& config, const std::string& architecture = "",
                             const ClassTable& classes = module_classes());

/// The modules of the unit classes; of nested ones the outer module. Throws UserError when no class
/// belongs to the model, or when a module cannot be a unit.
PlannedUnits chosen_units(const ParallelModel& model, const NvfsdpOptions& options);

}  // namespace automodel::distributed

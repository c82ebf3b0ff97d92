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

/// Arguments of nvfsdp_strategy_parallelize beside the model and the mesh; upstream's names and
/// defaults.
struct NvfsdpOptions {
  /// Makes the optimizer once the model is sharded; may be empty.
  std::function<void(Engine&)> optimizer;
  /// Classes whose modules are units, as paths; absent: the whole model is one unit.
  std::optional<std::vector<std::string>> nvfsdp_unit_modules;
  TpPlanChoice tp_shard_plan;  ///< used when the mesh has tensor-parallel ranks
  /// "no_shard", "optim", "optim_grads", "optim_grads_params" (ZeRO 0 to 3); the documentation's
  /// other names too: "params" shards parameters and keeps gradients whole, "grads_params" shards
  /// both. An optimizer only ever sees its rank's range.
  std::string data_parallel_sharding_strategy = "optim_grads_params";
  bool init_nvfsdp_with_meta_device = false;
  bool grad_reduce_in_fp32 = false;
  bool preserve_fp32_weights = false;
  bool overlap_grad_reduce = true;
  bool overlap_param_gather = true;
  bool check_for_nan_in_grad = true;
  bool report_nan_in_param_grad = false;
  bool average_in_collective = false;
  bool disable_bucketing = false;
  bool calculate_per_token_loss = false;
  bool keep_fp8_transpose_cache_when_using_custom_fsdp = false;
  bool nccl_ub = false;
  bool fsdp_double_buffer = false;
  ActivationCheckpointingMode activation_checkpointing = ActivationCheckpointingMode::kOff;
  std::string dp_mesh_name = "dp";
  std::string cp_mesh_name = "cp";
  std::string tp_mesh_name = "tp";
  CpRotateMethod cp_rotate_method = CpRotateMethod::kAllGather;
  at::Device device = at::kCPU;
  TraceSink* trace = nullptr;
  ClassTable classes = module_classes();  ///< what the paths of unit modules may mean
  Reporter* reporter = nullptr;           ///< is told of paths that mean nothing; may be null
};

/// The sharding that the options mean. UserError naming the valid strategies.
ShardingOptions nvfsdp_sharding(const NvfsdpOptions& options);

/// The options of a recipe's megatron_fsdp section, as nvfsdp_sharding reads them.
ShardingOptions sharding_options(const MegatronFSDPConfig& config, at::Device device);

/// A recipe's megatron_fsdp section as arguments for a class of models: without unit modules those
/// are its layers, by the table, which the arguments keep. UserError for a zero_dp_strategy outside
/// 0 to 3.
NvfsdpOptions nvfsdp_options(const MegatronFSDPConfig& config, const std::string& architecture = "",
                             const ClassTable& classes = module_classes());

/// The modules that the unit classes choose; of modules inside each other the outer one. UserError
/// when no class is one of the model's, or when a module cannot be a unit.
PlannedUnits chosen_units(const ParallelModel& model, const NvfsdpOptions& options);

}  // namespace automodel::distributed

#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/reporter.h"
#include "distributed/config.h"
#include "distributed/device_mesh.h"
#include "distributed/engine.h"
#include "distributed/fully_sharded.h"
#include "distributed/sharding_options.h"
#include "distributed/tp_plan.h"
#include "nn/attention_core.h"
#include "nn/loss_head.h"

namespace automodel::distributed {

/// A model as a parallelizer sees it. The module has no memory behind its parameters yet, or owns
/// it, in which case its values are kept.
struct ParallelModel {
  torch::nn::Module& module;
  TpModel facts;  ///< architecture, heads, plan, names of the parameters
  /// Takes the head of a split vocabulary; may be empty when there is no tensor parallelism.
  std::function<void(std::shared_ptr<nn::LossHead>)> set_loss_head;
  /// Takes the attention over the tokens of all context-parallel ranks; empty for a model whose
  /// tokens do not look at each other.
  std::function<void(std::shared_ptr<nn::AttentionCore>)> set_attention_core;
};

/// Arguments of fsdp2_strategy_parallelize beside the model and the mesh; upstream's names and
/// defaults.
struct ParallelizeOptions {
  std::optional<MixedPrecisionPolicy> mp_policy;  ///< absent: MixedPrecisionPolicy::unwritten()
  std::optional<CPUOffloadPolicy> offload_policy;
  bool sequence_parallel = false;
  ActivationCheckpointingMode activation_checkpointing = ActivationCheckpointingMode::kOff;
  TpPlanChoice tp_shard_plan;  ///< wins over every other plan
  std::string dp_replicate_mesh_name = "dp_replicate";
  std::string dp_shard_cp_mesh_name = "dp_shard_cp";
  std::string tp_mesh_name = "tp";
  std::string cp_mesh_name = "cp";  ///< the mesh may be without
  CpRotateMethod cp_rotate_method = CpRotateMethod::kAllGather;
  std::string dp_mesh_name = "dp_cp";  ///< ranks whose gradients are averaged
  bool enable_async_tensor_parallel = false;
  /// Experts are split over `ep_mesh_name` and sharded over `ep_shard_mesh_name` where the mesh has
  /// them; `moe` says how.
  std::string ep_mesh_name = "ep";
  std::string ep_shard_mesh_name = "ep_shard";
  MoEParallelizerConfig moe;
  /// Models with experts keep gathered parameters and whole gradients between the micro-batches of
  /// a step (MoEFSDPSyncMixin); others do not look at it. Upstream's backend option.
  bool enable_fsdp_optimizations = false;
  /// Everything else about the units: device, prefetching, resharding, trace. The policies above
  /// win over its dtypes and offloading.
  ShardingOptions sharding;
};

/// How one class of models is spread over a mesh.
class ParallelizationStrategy {
 public:
  virtual ~ParallelizationStrategy() = default;

  /// Splits, recomputes and shards `model`, and gives it memory. The engine is the model's owner
  /// from then on. Called by every rank of the mesh.
  virtual std::unique_ptr<Engine> parallelize(const ParallelModel& model, const DeviceMesh& mesh,
                                              const ParallelizeOptions& options) const = 0;
};

/// What every model gets that has no strategy of its own: tensor, context and expert parallelism,
/// activation checkpointing, then sharding of the experts, of the layer lists and of the root.
class DefaultParallelizationStrategy : public ParallelizationStrategy {
 public:
  std::unique_ptr<Engine> parallelize(const ParallelModel& model, const DeviceMesh& mesh,
                                      const ParallelizeOptions& options) const override;

 protected:
  /// What shards an element of a layer list when experts are not split: for strategies of classes.
  virtual ShardFunction shard_function() const;
};

/// Strategies by the name of the model's class ("LlamaForCausalLM").
class StrategyRegistry final {
 public:
  /// UserError "name is required" for an empty one, "<name> already registered" for a taken one.
  void register_parallel_strategy(const std::string& name,
                                  std::unique_ptr<ParallelizationStrategy> strategy);
  /// The class's own, or the default one, which all other classes share.
  const ParallelizationStrategy& get_parallelization_strategy(const std::string& name) const;
  bool has(const std::string& name) const { return strategies_.contains(name); }

 private:
  std::map<std::string, std::unique_ptr<ParallelizationStrategy>> strategies_;
  DefaultParallelizationStrategy default_;
};

/// Looks the model's strategy up and has it parallelize the model. Returns the engine, through
/// which the model is trained.
std::unique_ptr<Engine> fsdp2_strategy_parallelize(const ParallelModel& model,
                                                   const DeviceMesh& mesh,
                                                   const ParallelizeOptions& options,
                                                   const StrategyRegistry& registry = {});

/// Whether this build has the engine behind nvfsdp_strategy_parallelize. It always has; upstream's
/// flag says whether a package could be imported.
inline constexpr bool HAVE_NVFSDP = true;

/// Arguments of nvfsdp_strategy_parallelize beside the model and the mesh; upstream's names and
/// defaults.
struct NvfsdpOptions {
  /// Makes the optimizer once the model is sharded; may be empty.
  std::function<void(Engine&)> optimizer;
  /// Classes that are units, as paths; absent: those of the model's layers.
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
  bool is_available = HAVE_NVFSDP;  ///< false: as in a build without the engine
};

/// Megatron-FSDP: tensor and context parallelism, then sharding as data_parallel_sharding_strategy
/// says, over the axis dp_mesh_name, or "dp_cp" when there are context-parallel ranks. Throws
/// UserError "nvFSDP is not installed ..." when it is not available, "Hybrid-sharding not
/// supported" on a mesh with replicas, and when no unit class is the model's.
std::unique_ptr<Engine> nvfsdp_strategy_parallelize(const ParallelModel& model,
                                                    const DeviceMesh& mesh,
                                                    const NvfsdpOptions& options,
                                                    Reporter& reporter);

/// The sharding that the options mean. UserError naming the valid strategies.
ShardingOptions nvfsdp_sharding(const NvfsdpOptions& options);

/// A recipe's megatron_fsdp section as arguments.
NvfsdpOptions nvfsdp_options(const MegatronFSDPConfig& config);

/// A class that recipes may name by its path in transformers.
struct ModuleClass {
  std::string path;  ///< "transformers.models.llama.modeling_llama.LlamaDecoderLayer"
  std::string name;  ///< "LlamaDecoderLayer"
};

/// The class of a path. UserError for a path without a dot or one that is not known: names are
/// looked up here, nothing is imported.
ModuleClass import_class_from_path(const std::string& path);

/// Those of several paths, in order; one that fails is left out with the warning "Could not import
/// class from path ...".
std::vector<ModuleClass> import_classes_from_paths(const std::vector<std::string>& paths,
                                                   Reporter& reporter);

/// The class of a model's layers in transformers: "LlamaDecoderLayer" of LlamaForCausalLM.
std::string layer_class_of(std::string_view architecture);

}  // namespace automodel::distributed

#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "distributed/fsdp/flat_units.h"
#include "distributed/fsdp/sharding_options.h"
#include "distributed/settings/distributed_config.h"
#include "mesh/mesh.h"

namespace automodel::distributed {

/// Grouped experts that are units of their own.
struct ExpertUnits {
  std::vector<std::string> modules;  ///< fqns; none: experts are part of their blocks
  /// Where other ranks have other experts: their options, and the ranks with the same ones (the
  /// ep_shard axis). Absent: they are placed as everything else.
  std::optional<ShardingOptions> sharding;
  int64_t num_parts = 1;
};

/// How an engine keeps a model's state: everything that its bytes depend on.
struct MemoryOptions {
  std::optional<ShardingOptions> sharding;  ///< of ShardedEngine; absent: DataParallel's replicas
  int64_t num_parts = 1;                    ///< ranks of the shard group
  int64_t num_replicas = 1;                 ///< ranks that hold the same
  /// Bytes of optimizer state for an element of a parameter of that dtype; absent: Adam's two
  /// averages in that dtype.
  std::function<int64_t(at::ScalarType parameter)> optimizer_bytes;
  /// Bytes of optimizer state for parts of tensors of that dtype, of an optimizer whose bytes
  /// depend on the tensor; their names are Hugging Face's, as in `keys`. Absent: optimizer_bytes.
  std::function<int64_t(std::span<const tensor::FlatSegment> segments, at::ScalarType parameter)>
      optimizer_bytes_of_tensors;
  tensor::KeyMap keys;                       ///< of the module, for optimizer_bytes_of_tensors
  bool recomputes = false;                   ///< activation checkpointing of whole blocks
  TableUnits tables;                         ///< that are units of their own
  std::optional<at::ScalarType> head_dtype;  ///< of the head's unit, where it has its own
  ExpertUnits experts;
  int64_t num_micro_batches = 1;
  /// MoEFSDPSyncMixin: units stay gathered from their first backward of a step to their last.
  bool keeps_after_backward = false;
  /// A pipeline's stage: the same, unless gradients are reduced each time, and all units reduce and
  /// free when the last backward is over. Its gradients count as if they stayed.
  bool is_stage = false;
  bool records_steps = false;  ///< gradients stay in their place (Engine::keep_gradients)
  /// Forwards with a graph through all blocks a micro-batch, whose backwards come in the opposite
  /// order, and forwards without one before the last of those.
  int64_t num_passes = 1;
  int64_t num_graphless_passes = 0;
  at::Device device = at::kCPU;              ///< that computes
  int64_t bucket_bytes = int64_t{25} << 20;  ///< of replicas' all-reduces
  int64_t first_bucket_bytes = int64_t{1} << 20;

  /// Whether a rank keeps only its range of the parameters, and of the gradients.
  bool shards_parameters() const { return sharding && sharding->parameters == Placement::kSharded; }
  bool shards_gradients() const { return sharding && sharding->gradients == Placement::kSharded; }
};

/// What a recipe's strategy does on a mesh, as the engines are set up for it. On one rank nothing
/// is sharded and no policy applies. With `ep_size` above 1 `experts` is set but for the modules,
/// which are the model's to name. `device` is what computes: a CPU offloads nothing, a device
/// gathers ahead. Throws UserError for an unknown dtype.
MemoryOptions memory_options(const DistributedSetup& setup, const mesh::MeshSizes& sizes,
                             at::Device device = at::kCPU);

}  // namespace automodel::distributed

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
#include "nn/activation_sizes.h"

namespace automodel::distributed {

/// Grouped experts that are units of their own.
struct ExpertUnits {
  std::vector<std::string> modules;  ///< fqns; none: experts are part of their blocks
  /// Set when other ranks hold different experts: the experts' options, and the number of ranks
  /// with the same ones (the ep_shard axis). Absent: experts are placed like everything else.
  std::optional<ShardingOptions> sharding;
  int64_t num_parts = 1;
};

/// Everything about an engine that the bytes of a model's state depend on.
struct MemoryOptions {
  std::optional<ShardingOptions> sharding;  ///< of ShardedEngine; absent: DataParallel's replicas
  int64_t num_parts = 1;                    ///< ranks of the shard group
  int64_t num_replicas = 1;                 ///< ranks that hold the same part
  /// Bytes of optimizer state per element of a parameter of that dtype; absent: Adam's two averages
  /// in that dtype.
  std::function<int64_t(at::ScalarType parameter)> optimizer_bytes;
  bool recomputes = false;                   ///< activation checkpointing of whole blocks
  TableUnits tables;                         ///< tables that are units of their own
  std::optional<at::ScalarType> head_dtype;  ///< of the head's unit, if it has its own
  ExpertUnits experts;
  int64_t num_micro_batches = 1;
  /// MoEFSDPSyncMixin: units stay gathered from their first backward of a step to the last.
  bool keeps_after_backward = false;
  /// For a pipeline's stage: as keeps_after_backward unless gradients are reduced after each
  /// backward; all units reduce and free when the last backward has ended.
  bool is_stage = false;
  /// Forwards with a graph through all blocks per micro-batch, whose backwards run in reverse
  /// order; and forwards without a graph, before the last of those.
  int64_t num_passes = 1;
  int64_t num_graphless_passes = 0;
  at::Device device = at::kCPU;              ///< the device that computes
  int64_t bucket_bytes = int64_t{25} << 20;  ///< of replicas' all-reduces
  int64_t first_bucket_bytes = int64_t{1} << 20;
};

/// The options for what a recipe's strategy does on a mesh. On one rank nothing is sharded and no
/// policy applies. With `ep_size` above 1 `experts` is set, except the modules, which the model
/// names. `device` computes: on a CPU nothing is offloaded, on another device units are gathered
/// ahead. Throws UserError for an unknown dtype.
MemoryOptions memory_options(const DistributedSetup& setup, const mesh::MeshSizes& sizes,
                             at::Device device = at::kCPU);

/// The memory of one unit's parameters of one dtype and trainability: bytes of one rank, with
/// padding. Ranges are equal, so every rank holds the same number.
struct UnitMemory {
  std::string unit;        ///< "" for the root
  bool is_expert = false;  ///< a unit of experts
  at::ScalarType dtype = at::kFloat;
  at::ScalarType computed_dtype = at::kFloat;
  bool is_trained = true;
  int64_t numel = 0;  ///< of the whole unit, without padding

  int64_t parameters = 0;  ///< always allocated: this rank's range, or all when replicated
  int64_t masters = 0;     ///< the range that the optimizer updates beside replicated parameters
  int64_t gradients = 0;   ///< always allocated
  int64_t optimizer = 0;
  int64_t gathered = 0;         ///< whole parameters while the unit is in use; 0 when always whole
  int64_t gather_copy = 0;      ///< this rank's range, cast to the dtype of computation
  int64_t whole_gradients = 0;  ///< added up by one backward; 0 if always allocated
  int64_t accumulated = 0;      ///< sum over micro-batches in the reduction's dtype; 0: none
  int64_t sent = 0;             ///< what the unit's reduction sends
  int64_t sum_copy = 0;         ///< the reduction's result, if not written into the gradients
  int64_t host = 0;             ///< kept in host memory beside a device (offloading)
  int64_t updated = 0;          ///< elements that this rank updates on the device that computes

  int64_t state() const { return parameters + masters + gradients + optimizer; }
};

/// The memory in use at one moment of a step, in bytes.
struct MemoryMoment {
  std::string name;             ///< "backward of model.layers.3, micro-batch 2"
  int64_t gathered = 0;         ///< whole parameters
  int64_t whole_gradients = 0;  ///< gradients not yet reduced
  int64_t idle = 0;             ///< freed buffers that the engine keeps for the next unit
  int64_t casts = 0;            ///< copies in another dtype around a collective
  int64_t activations = 0;      ///< kept for backward
  int64_t working = 0;          ///< other intermediate tensors
  int64_t logits = 0;           ///< part of working: a chunk of logits, and the head's gradients

  int64_t total() const {
    return gathered + whole_gradients + idle + casts + activations + working + logits;
  }
};

/// Collectives of one optimizer step on one rank. Bytes are those of whole tensors.
struct StepCollectives {
  int64_t num_gathers = 0;
  int64_t gathered_bytes = 0;
  int64_t num_reductions = 0;  ///< reduce-scatters; all-reduces if gradients are replicated
  int64_t reduced_bytes = 0;
  int64_t num_replica_reductions = 0;  ///< all-reduces of a part over HSDP's replicas
  int64_t replica_reduced_bytes = 0;
  // Collectives of experts that are units of their own; not counted above.
  int64_t num_expert_gathers = 0;
  int64_t expert_gathered_bytes = 0;
  int64_t num_expert_reductions = 0;
  int64_t expert_reduced_bytes = 0;
  // All-to-alls of tokens; bytes are what this rank sends, including to itself.
  int64_t num_exchanges = 0;
  int64_t exchanged_bytes = 0;

  StepCollectives& operator+=(const StepCollectives& other);
  StepCollectives operator*(int64_t times) const;
  bool operator==(const StepCollectives&) const = default;
};

/// A rank's memory, computed before a run: of its device, and of the host if that is another one.
struct MemoryPlan {
  std::vector<UnitMemory> units;  ///< in the order of their first parameters
  int64_t parameters = 0;         ///< including masters
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t host = 0;           ///< offloaded parameters, gradients and optimizer state
  int64_t building = 0;       ///< beside the state while weights are loaded: a unit's buffers
  int64_t resting = 0;        ///< beside the state between steps: buffers kept for the next one
  MemoryMoment peak;          ///< the fullest moment of a step
  StepCollectives per_step;   ///< all micro-batches and the update
  StepCollectives per_micro;  ///< one micro-batch that is not the last

  int64_t state() const { return parameters + gradients + optimizer; }
  int64_t total() const { return state() + peak.total(); }
  /// The unit with the most parameters.
  const UnitMemory& largest_unit() const;
};

/// Plans the memory of a module's flat groups (group_parameters). State is exact, since the layouts
/// are the engines'. The peak is found by walking through a step as the engines do: gathers,
/// buffers kept for the next unit, unreduced gradients, `activations` of the blocks. Reads no
/// tensor's memory, so placeholders are enough.
MemoryPlan plan_memory(std::span<const FlatGroup> groups, const MemoryOptions& options,
                       const nn::ActivationSizes& activations);

}  // namespace automodel::distributed

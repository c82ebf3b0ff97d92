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
  bool recomputes = false;                   ///< activation checkpointing of whole blocks
  TableUnits tables;                         ///< that are units of their own
  std::optional<at::ScalarType> head_dtype;  ///< of the head's unit, where it has its own
  ExpertUnits experts;
  int64_t num_micro_batches = 1;
  /// MoEFSDPSyncMixin: units stay gathered from their first backward of a step to their last.
  bool keeps_after_backward = false;
  /// A pipeline's stage: the same, unless gradients are reduced each time, and all units reduce and
  /// free when the last backward is over.
  bool is_stage = false;
  /// Forwards with a graph through all blocks a micro-batch, whose backwards come in the opposite
  /// order, and forwards without one before the last of those.
  int64_t num_passes = 1;
  int64_t num_graphless_passes = 0;
  at::Device device = at::kCPU;              ///< that computes
  int64_t bucket_bytes = int64_t{25} << 20;  ///< of replicas' all-reduces
  int64_t first_bucket_bytes = int64_t{1} << 20;
};

/// What a recipe's strategy does on a mesh, as the engines are set up for it. On one rank nothing
/// is sharded and no policy applies. With `ep_size` above 1 `experts` is set but for the modules,
/// which are the model's to name. `device` is what computes: a CPU offloads nothing, a device
/// gathers ahead. Throws UserError for an unknown dtype.
MemoryOptions memory_options(const DistributedSetup& setup, const mesh::MeshSizes& sizes,
                             at::Device device = at::kCPU);

/// One unit's parameters of one dtype and kind; bytes are one rank's, padding included. Every rank
/// holds the same number: ranges are equal.
struct UnitMemory {
  std::string unit;        ///< "" for the root
  bool is_expert = false;  ///< a unit of experts
  at::ScalarType dtype = at::kFloat;
  at::ScalarType computed_dtype = at::kFloat;
  bool is_trained = true;
  int64_t numel = 0;  ///< of the whole unit, padding not counted

  int64_t parameters = 0;  ///< that stay: this rank's range, or the whole where replicated
  int64_t masters = 0;     ///< the range that the optimizer updates beside replicated parameters
  int64_t gradients = 0;   ///< that stay
  int64_t optimizer = 0;
  int64_t gathered = 0;         ///< whole parameters while the unit is in use; 0 when always whole
  int64_t gather_copy = 0;      ///< this rank's range in the dtype of computation
  int64_t whole_gradients = 0;  ///< that one backward adds up; 0 when they stay
  int64_t accumulated = 0;      ///< sum of micro-batches in the dtype of the reduction; 0: none
  int64_t sent = 0;             ///< what the unit's reduction sends
  int64_t sum_copy = 0;         ///< its result where it cannot be written into the gradients
  int64_t host = 0;             ///< what rests in the host's memory beside a device (offloading)
  int64_t updated = 0;          ///< elements that this rank updates there where it computes

  int64_t state() const { return parameters + masters + gradients + optimizer; }
};

/// What is there at one moment of a step, in bytes.
struct MemoryMoment {
  std::string name;             ///< "backward of model.layers.3, micro-batch 2"
  int64_t gathered = 0;         ///< whole parameters
  int64_t whole_gradients = 0;  ///< gradients that wait for their reduction
  int64_t idle = 0;             ///< freed buffers that the engine keeps for the next unit
  int64_t casts = 0;            ///< copies in another dtype around a collective
  int64_t activations = 0;      ///< kept for backward
  int64_t working = 0;          ///< other intermediate tensors
  int64_t logits = 0;           ///< of working: a chunk of logits and the head's gradients

  int64_t total() const {
    return gathered + whole_gradients + idle + casts + activations + working + logits;
  }
};

/// Collectives of one optimizer step on one rank. Bytes are those of the whole tensor.
struct StepCollectives {
  int64_t num_gathers = 0;
  int64_t gathered_bytes = 0;
  int64_t num_reductions = 0;  ///< reduce-scatters; all-reduces where gradients are replicated
  int64_t reduced_bytes = 0;
  int64_t num_replica_reductions = 0;  ///< all-reduces of a part over HSDP's replicas
  int64_t replica_reduced_bytes = 0;
  // Collectives of experts that are units of their own, which are not in those above.
  int64_t num_expert_gathers = 0;
  int64_t expert_gathered_bytes = 0;
  int64_t num_expert_reductions = 0;
  int64_t expert_reduced_bytes = 0;
  // All-to-alls of tokens, of which bytes are what this rank sends, its own part included.
  int64_t num_exchanges = 0;
  int64_t exchanged_bytes = 0;

  StepCollectives& operator+=(const StepCollectives& other);
  StepCollectives operator*(int64_t times) const;
  bool operator==(const StepCollectives&) const = default;
};

/// A rank's memory before anything runs: of its device, and of the host where that is another.
struct MemoryPlan {
  std::vector<UnitMemory> units;  ///< the order of their first parameters
  int64_t parameters = 0;         ///< masters included
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t host = 0;           ///< offloaded parameters, gradients and optimizer state
  int64_t building = 0;       ///< beside the state while weights are loaded: a unit's buffers
  int64_t resting = 0;        ///< beside the state between steps: buffers kept for the next one
  MemoryMoment peak;          ///< the fullest moment of a step
  StepCollectives per_step;   ///< of all micro-batches and the update
  StepCollectives per_micro;  ///< of one that is not the last

  int64_t state() const { return parameters + gradients + optimizer; }
  int64_t total() const { return state() + peak.total(); }
  /// The unit with the most parameters.
  const UnitMemory& largest_unit() const;
};

/// Computes the plan of a module's flat groups (group_parameters). State is exact: the same layouts
/// as the engines'. The peak is found by walking through a step as the engines do: gathers,
/// buffers that are kept for the next unit, gradients that wait, `activations` of the blocks. No
/// tensor's memory is touched: placeholders do.
MemoryPlan plan_memory(std::span<const FlatGroup> groups, const MemoryOptions& options,
                       const nn::ActivationSizes& activations);

}  // namespace automodel::distributed

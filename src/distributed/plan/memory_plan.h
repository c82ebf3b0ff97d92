#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/fsdp/flat_units.h"
#include "distributed/plan/memory_options.h"
#include "distributed/plan/step_costs.h"
#include "distributed/plan/unit_memory.h"
#include "nn/activation_sizes.h"

namespace automodel::distributed {

/// A rank's memory before anything runs: of its device, and of the host where that is another.
struct MemoryPlan {
  std::vector<UnitMemory> units;  ///< in the order of their first parameters
  int64_t parameters = 0;         ///< including masters
  int64_t gradients = 0;          ///< all that the optimizer reads
  int64_t kept_gradients = 0;     ///< those of them whose memory stays between steps
  int64_t optimizer = 0;
  int64_t host = 0;           ///< offloaded parameters, gradients and optimizer state
  int64_t building = 0;       ///< beside the state while weights are loaded: a unit's buffers
  MemoryMoment peak;          ///< the fullest moment of a step
  StepCollectives per_step;   ///< all micro-batches and the update
  StepCollectives per_micro;  ///< one micro-batch that is not the last

  /// What stays between steps.
  int64_t state() const { return parameters + kept_gradients + optimizer; }
  int64_t total() const { return state() + peak.total(); }
  /// The unit with the most parameters.
  const UnitMemory& largest_unit() const;
};

/// Plans the memory of a module's flat groups (flat_parameters). State is exact, since the layouts
/// are the engines'. The peak is found by walking through a step as the engines do: gathers,
/// buffers kept for the next unit, unreduced gradients, `activations` of the blocks. Reads no
/// tensor's memory, so placeholders are enough.
MemoryPlan plan_memory(std::span<const FlatParameters> groups, const MemoryOptions& options,
                       const nn::ActivationSizes& activations);

}  // namespace automodel::distributed

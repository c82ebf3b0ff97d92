#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "recipes/plan/device_memory.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

struct RecipePlan;

/// One part of the memory that a rank needs.
struct PlanPart {
  std::string name;
  int64_t bytes = 0;
};

/// A change of the recipe, proposed when a plan does not fit, and what the changed plan needs.
struct PlanChange {
  std::string change;  ///< "distributed.defer_fsdp_grad_sync=false"
  int64_t needed = 0;  ///< as PlanFit::needed
  int64_t host = 0;    ///< host memory of the changed plan
  bool fits = false;
};

/// What a rank needs, compared with the memory of its device.
struct PlanFit {
  std::string device;
  int64_t memory = 0;   ///< of the device
  int64_t reserve = 0;  ///< part of `memory` that is kept for what no plan counts
  int64_t needed = 0;   ///< at the fullest moment, including the reserve
  bool fits = false;
  std::vector<PlanPart> largest;    ///< the three largest, in descending order
  std::vector<PlanChange> changes;  ///< changes that need less memory; empty when it fits
};

/// Plans the recipe again with more overrides and on that number of ranks; nullopt when the recipe
/// then has errors.
using PlanAgain =
    std::function<std::optional<RecipePlan>(const std::vector<std::string>&, int64_t)>;

/// Whether a plan fits. When it does not, also what each of these changes of the recipe would need,
/// by planning it: gradients reduced every micro-batch, checkpointing, sharding (and these
/// together), smaller batches, offloading, tensor and context parallelism, a pipeline, twice the
/// ranks.
PlanFit fit_plan(const RecipePlan& plan, const Recipe& recipe, const DeviceMemory& memory,
                 const PlanAgain& again);

/// The comparison as text.
std::string fit_text(const PlanFit& fit);
/// The comparison as JSON, sizes in bytes.
Json fit_json(const PlanFit& fit);

}  // namespace automodel::recipes

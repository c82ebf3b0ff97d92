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

/// A part of what a rank needs.
struct PlanPart {
  std::string name;
  int64_t bytes = 0;
};

/// What a change of the recipe would make of a plan that does not fit.
struct PlanChange {
  std::string change;  ///< "distributed.defer_fsdp_grad_sync=false"
  int64_t needed = 0;  ///< as PlanFit::needed
  int64_t host = 0;    ///< what it moves to the host
  bool fits = false;
};

/// What a rank needs against what its device has.
struct PlanFit {
  std::string device;
  int64_t memory = 0;   ///< of the device
  int64_t reserve = 0;  ///< of it, for what no plan counts
  int64_t needed = 0;   ///< at the fullest moment, with the reserve
  bool fits = false;
  std::vector<PlanPart> largest;    ///< three, the largest first
  std::vector<PlanChange> changes;  ///< that make it smaller; none are looked for when it fits
};

/// The plan of the recipe with more overrides, on so many ranks; nullopt when it is no right recipe
/// then.
using PlanAgain =
    std::function<std::optional<RecipePlan>(const std::vector<std::string>&, int64_t)>;

/// Whether a plan fits, and where it does not what changes of the recipe would make of it, each
/// planned: gradients reduced every micro-batch, checkpointing, sharding (and these together),
/// smaller batches, offloading, tensor and context parallelism, a pipeline, twice the ranks.
PlanFit fit_plan(const RecipePlan& plan, const Recipe& recipe, const DeviceMemory& memory,
                 const PlanAgain& again);

/// For people.
std::string fit_text(const PlanFit& fit);
/// For programs.
Json fit_json(const PlanFit& fit);

}  // namespace automodel::recipes
